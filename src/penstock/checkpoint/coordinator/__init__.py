"""Triggers checkpoints, collects acknowledgements, completes checkpoints, commits sinks."""
