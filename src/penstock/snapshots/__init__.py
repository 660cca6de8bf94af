"""Reads the state in checkpoints and savepoints, for look-ups, data frames, commands and pages."""
