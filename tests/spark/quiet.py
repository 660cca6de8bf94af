"""Checks that a program with logging at INFO shows no start-up messages of Spark."""

from __future__ import annotations

CONFIGURE_LOGGING = "import logging\nlogging.basicConfig(level=logging.INFO)\n"

START_UP_MESSAGES = (
    "clientserver",
    "py4j",
    "Using Spark's default log4j profile",
    "Setting default log level",
    "To adjust logging level",
    "Using incubator modules",
    "native-hadoop",
)


def assert_quiet(stderr: str) -> None:
    assert "INFO:penstock.spark:Stages exchange records by channel" in stderr, "logging is at INFO"
    assert [text for text in START_UP_MESSAGES if text in stderr] == [], stderr
