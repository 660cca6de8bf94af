"""Metrics of functions, under PyFlink's module name."""

from penstock.datastream.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
