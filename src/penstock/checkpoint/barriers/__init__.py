"""Barrier alignment, the in-flight data of unaligned checkpoints, and the files it is stored in."""
