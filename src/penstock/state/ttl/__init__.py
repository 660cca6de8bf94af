"""Keyed states with a time-to-live, and the cleanup of expired values."""
