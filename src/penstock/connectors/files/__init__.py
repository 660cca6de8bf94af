"""Reads files as a source, and writes part files in buckets as an exactly-once sink."""
