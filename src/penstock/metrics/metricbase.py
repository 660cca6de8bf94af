"""The same names in the module where PyFlink defines them."""

from penstock.datastream.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
