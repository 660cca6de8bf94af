"""Persists checkpoints: job directory, journal, metadata, completed checkpoints."""
