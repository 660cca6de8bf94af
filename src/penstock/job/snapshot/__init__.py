"""A stage's part of a checkpoint: state, source positions, sink state and in-flight data."""
