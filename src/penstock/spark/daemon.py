"""The daemon process from which Spark forks its Python workers.

Spark starts it instead of `pyspark.daemon`. It imports what tasks need before it forks, so workers
do not spend their first second on imports.
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
    # Loaded modules are never garbage, so collections in workers need not scan them.
    gc.freeze()
    manager()
