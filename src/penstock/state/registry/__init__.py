"""The registry of a step's states: their tables, types and migrations."""
