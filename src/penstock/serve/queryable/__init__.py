"""Queryable state: look-ups of keys in checkpoints, and in the state of running jobs."""
