"""Savepoints: snapshots in one open format, which any backend writes and any backend reads."""
