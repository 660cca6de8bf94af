"""The latency from stage to stage, and the duration of checkpoints through all stages."""
