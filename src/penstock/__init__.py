"""Flink-style stateful streaming for PySpark."""

from penstock.redaction import redact_logs

__version__ = "0.1.0"

redact_logs()
