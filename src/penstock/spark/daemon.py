"""The daemon process from which Spark forks its Python workers.

Spark starts it instead of `pyspark.daemon`. It imports what tasks need before it forks, so workers
do not spend their first second on imports. It prints no traceback when Spark has closed a
connection, which is how Spark ends workers.
"""

from __future__ import annotations

import gc
import os
import select
import sys
import traceback
from types import SimpleNamespace
from typing import Any

import pandas  # noqa: F401 - pyarrow imports it on first use
import pyarrow
import pyarrow.compute
import pyarrow.ipc
from pyspark import daemon

import penstock.task.subtask  # noqa: F401

_STDIN = 0


def main() -> None:
    """Fork workers until Spark ends."""
    pyarrow.array(["warm", "up"])
    # Loaded modules are never garbage, so collections in workers need not scan them.
    gc.freeze()
    # Spark's daemon and its workers report errors by these names.
    quiet = SimpleNamespace(print_exc=_print_exc, format_exc=traceback.format_exc)
    vars(daemon).update(print=_print, traceback=quiet)
    try:
        daemon.manager()
    except OSError:
        if not _has_spark_ended():
            raise
        # Without the end of Python, which would print another error when it flushes its output.
        os._exit(1)


def _print(*values: object, **options: Any) -> None:
    if not _is_closed_by_spark():
        print(*values, **options)


def _print_exc() -> None:
    if not _is_closed_by_spark():
        traceback.print_exc()


def _is_closed_by_spark() -> bool:
    """Tell whether the exception that is being handled is about a closed connection."""
    return isinstance(sys.exception(), BrokenPipeError | ConnectionResetError)


def _has_spark_ended() -> bool:
    """Tell whether the JVM has closed the pipe through which it ends this process."""
    poller = select.poll()
    poller.register(_STDIN, 0)
    return bool(poller.poll(0))


if __name__ == "__main__":
    main()
