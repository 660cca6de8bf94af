"""A long run with many checkpoints, and what grows during it."""
