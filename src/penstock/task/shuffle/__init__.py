"""Runs subtasks whose records Spark's shuffle carries."""
