"""Restoring a job: reading snapshots, loading their state, and removing what no snapshot needs."""
