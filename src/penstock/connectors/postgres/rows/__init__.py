"""Encodes records as COPY text and stages them until a micro-batch or checkpoint publishes them."""
