"""Runs the first operator of a stage over its input, one module per kind of head."""
