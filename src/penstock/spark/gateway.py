"""Starts Spark's JVM without its start-up messages on standard error."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

_START_UP_MESSAGE = re.compile(
    rb"WARNING: Using incubator modules|Using Spark's default log4j profile"
    rb"|Setting default log level to|To adjust logging level use"
    rb"|.*Unable to load native-hadoop library"
)
_STDERR = 2


@contextmanager
def quiet_jvm(settings: Mapping[str, str]) -> Iterator[None]:
    """Start the JVM, unless this process has one, for a session that is created inside the block.

    No option turns off all start-up messages of the JVM and of Spark. So the JVM writes its
    standard error into a pipe, and a thread copies it to the standard error of this process;
    until the end of the block it leaves these messages out.
    """
    if SparkContext._gateway is not None:
        yield
        return
    conf = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        conf.set(key, value)
    is_starting = threading.Event()
    is_starting.set()
    source, stderr_of_jvm = os.pipe()
    # It runs before the JVM does, to show why a JVM does not start.
    threading.Thread(
        target=_copy, args=(source, is_starting), name="spark-stderr", daemon=True
    ).start()
    try:
        try:
            gateway = launch_gateway(conf, {"stderr": stderr_of_jvm})
        finally:
            os.close(stderr_of_jvm)
        SparkContext._ensure_initialized(gateway=gateway)
        yield
    finally:
        is_starting.clear()


def _copy(source: int, is_starting: threading.Event) -> None:
    rest = b""
    while data := os.read(source, 65536):
        rest += data
        if is_starting.is_set():
            *lines, rest = rest.split(b"\n")
            shown = b"".join(line + b"\n" for line in lines if not _START_UP_MESSAGE.match(line))
        else:
            shown, rest = rest, b""
        with contextlib.suppress(OSError):
            os.write(_STDERR, shown)
    os.close(source)
