"""Writes rows to PostgreSQL: exactly once by two-phase commit, or as upserts by key."""
