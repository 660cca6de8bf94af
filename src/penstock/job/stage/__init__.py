"""The driver loop of a pipelined region: plans, submits and publishes micro-batches."""
