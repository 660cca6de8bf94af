"""Checkpoints of a whole job: barriers, the coordinator, and what is stored on disk."""
