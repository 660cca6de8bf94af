"""What runs inside a Spark task, without Spark: one subtask of one micro-batch."""
