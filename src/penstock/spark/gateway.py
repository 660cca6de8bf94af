"""Starts Spark's JVM, and lets it end, without messages on standard error that mean nothing."""

from __future__ import annotations

import contextlib
import os
import re
import sys
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


def quiet_end(context: SparkContext) -> None:
    """Print no traceback when the JVM ends first, as after a signal to the whole process group.

    The server that receives accumulators finds its connection closed then, and Python's default is
    to print that.
    """
    server = context._accumulatorServer
    print_error = server.handle_error

    def handle_error(request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            print_error(request, client_address)

    server.handle_error = handle_error


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
