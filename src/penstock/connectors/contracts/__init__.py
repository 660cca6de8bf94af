"""Contracts of sources, sinks and committers, and how the engine calls them."""
