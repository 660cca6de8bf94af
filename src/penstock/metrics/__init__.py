"""Metrics of functions, under the names PyFlink gives them."""

from penstock.datastream.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
