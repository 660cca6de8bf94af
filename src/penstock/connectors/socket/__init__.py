"""Reads lines from a socket, by way of a durable ingestion log."""
