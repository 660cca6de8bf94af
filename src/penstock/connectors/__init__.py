"""Contracts of sources and sinks, and the built-in connectors."""
