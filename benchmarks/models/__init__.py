"""Whether the models predict what checkpoints and recoveries of a job will cost."""
