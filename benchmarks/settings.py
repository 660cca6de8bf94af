"""The Spark settings that all contenders share, handed over by the environment.

`PYSPARK_SUBMIT_ARGS` reaches every JVM that a contender starts, penstock's too, without the
contender having to know. An engine may override settings.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
FILE_SYSTEM_LOG = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def environment(parallelism: int, driver_memory: str, jars: str = "") -> dict[str, str]:
    """What a contender's process gets on top of our own environment."""
    root = str(Path(__file__).resolve().parents[1])
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(parallelism),
        "spark.default.parallelism": str(parallelism),
        "spark.log.level": "ERROR",
        # Saves every engine some 40 ms per Python task.
        "spark.python.unix.domain.socket.enabled": "true",
    }
    if jars:
        settings["spark.jars"] = jars
    arguments = ["--master", "local[*]", "--driver-memory", driver_memory]
    for name, value in settings.items():
        arguments += ["--conf", f"{name}={value}"]
    return {
        "PYSPARK_SUBMIT_ARGS": shlex.join([*arguments, "pyspark-shell"]),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # Workers import the benchmark's modules by name.
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")])),
    }
