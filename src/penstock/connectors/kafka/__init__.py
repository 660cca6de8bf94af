"""Reads and writes Kafka topics exactly once."""
