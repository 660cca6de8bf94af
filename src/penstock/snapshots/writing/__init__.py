"""Builds savepoints from rows: stored keys and values of columns, operator state, metadata."""
