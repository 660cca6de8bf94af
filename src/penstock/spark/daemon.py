"""The process Spark forks its Python workers from.

Started by Spark in place of its own daemon module: what a task needs is imported here once,
and every worker begins with it instead of spending its first second on imports.
"""

from __future__ import annotations

import gc

import pandas  # noqa: F401 - pyarrow imports it on first use
import pyarrow
import pyarrow.compute
import pyarrow.ipc
from pyspark.daemon import manager

import penstock.task.subtask  # noqa: F401

if __name__ == "__main__":
    pyarrow.array(["warm", "up"])
    # Loaded modules are never garbage: collections in workers need not look at them.
    gc.freeze()
    manager()
