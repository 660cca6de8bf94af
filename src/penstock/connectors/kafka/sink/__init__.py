"""Writes Kafka topics: at least once from tasks, or exactly once in transactions of the driver."""
