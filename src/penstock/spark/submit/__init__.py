"""Runs micro-batches as Spark jobs."""
