"""Staged output of sinks: inline or in files, made durable at a barrier, checked when read."""
