"""The calls of Flink's REST API, by subject."""
