"""Creates the SparkSession that jobs run on, or adopts the existing one."""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import ConfigurationError, PortInUseError, RuntimeSetupError
from penstock.spark.gateway import quiet_end, quiet_jvm

logger = logging.getLogger("penstock.spark")

SPARK_MINOR = "4.3"
LOWEST_JAVA = 17

DEFAULT_MASTER = "local[*,4]"
"""All cores, and up to four attempts per task: plain `local[*]` never retries."""

_DEFAULTS = {
    "spark.app.name": "penstock",
    "spark.master": DEFAULT_MASTER,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.locality.wait": "300ms",
    "spark.python.worker.reuse": "true",
    # Over TCP, delayed acknowledgements of small writes cost every task about 40 ms.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    "spark.python.daemon.module": "penstock.spark.daemon",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # A task should run where its state is, not where most of its shuffle input is.
    "spark.shuffle.reduceLocality.enabled": "false",
}
_GATEWAY = "PYSPARK_GATEWAY_PORT"
_LOG_LEVEL = "spark.log.level"
_JVM_OPTIONS = "spark.driver.extraJavaOptions"
_QUIET = Path(__file__).with_name("log4j2.properties")

_REQUIRED = {
    "spark.scheduler.mode": "FAIR",
    # A re-run stage would mix two executions of one micro-batch.
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.stage.ignoreDecommissionFetchFailure": "false",
    "spark.speculation": "false",
}

_PORT_IN_USE = re.compile(
    r"Address already in use: Service '(?P<service>[^']+)' failed after .*"
    r"\(starting from (?P<port>\d+)\)"
)
_PORT_KEYS = {
    "sparkDriver": "spark.driver.port",
    "NettyBlockTransferService": "spark.blockManager.port",
    "SparkUI": "spark.ui.port",
}
"""By the name of Spark's service."""

_CONSEQUENCES = {
    "spark.scheduler.mode": "stages may have to wait for each other",
    "spark.stage.maxConsecutiveAttempts": "a nondeterministic DataFrame source that loses its "
    "shuffle files may mix two executions, and penstock.exchange cannot be 'shuffle'",
}


def open_session(settings: Mapping[str, str]) -> SparkSession:
    """Return the active session, or a new one with these `spark.*` settings.

    Raises:
        RuntimeSetupError: Java or pyspark is missing or has the wrong version.
        ConfigurationError: a setting would break exactly-once, or names a port that is in use.
    """
    check_pyspark(pyspark.__version__)
    _check_required(settings)
    _quiet_py4j()
    if SparkContext._active_spark_context is not None:
        return _adopt(SparkSession.builder.getOrCreate(), settings)
    check_java()
    submitted = _submitted()
    _check_required(submitted)
    # Workers must run the Python that pickled the functions.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = {**_DEFAULTS, **submitted, **settings, **_REQUIRED}
    if chosen["spark.master"].startswith("local"):
        # All executors are on this host, so Spark need not guess an address and warn about it.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if _LOG_LEVEL not in chosen:
        quiet = f"-Dlog4j2.configurationFile={_QUIET.as_uri()}"
        chosen[_JVM_OPTIONS] = " ".join(filter(None, [chosen.get(_JVM_OPTIONS), quiet]))
    builder = SparkSession.builder
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with quiet_jvm(chosen):
        try:
            session = builder.getOrCreate()
        except (Py4JNetworkError, ConnectionError) as error:
            message = (
                "Spark's JVM ended while it was starting: set spark.log.level to WARN to see why; "
                "one reason is a spark.ui.port that is in use"
            )
            raise RuntimeSetupError(message) from error
        except Py4JError as error:
            if (port := port_in_use(str(error))) is not None:
                raise port from error
            raise
    quiet_end(session.sparkContext)
    return session


def port_in_use(text: str) -> PortInUseError | None:
    """Return the error for a Java exception about a port in use, None for any other."""
    found = _PORT_IN_USE.search(text)
    key = None if found is None else _PORT_KEYS.get(found["service"].rpartition(".")[2])
    return None if found is None or key is None else PortInUseError(key, int(found["port"]))


def channel_dataframe(rows: pa.Table, spark: SparkSession | None) -> DataFrame:
    """Return rows of a channel as a DataFrame of the given session, the active one or a new one.

    The rows are those at the time of the call: reading the DataFrame does not contact the job.
    """
    if not rows.num_rows:
        # Spark accepts a table without rows, but not one without a record batch.
        rows = pa.Table.from_batches([pa.RecordBatch.from_pylist([], rows.schema)])
    session = spark or SparkSession.getActiveSession() or open_session({})
    return session.createDataFrame(rows)


def _quiet_py4j() -> None:
    """Keep py4j from logging every closed connection at INFO, unless the program set its level.

    It also logs Ctrl-C and a JVM that has ended as errors with a traceback, to the root logger. The
    caller of Spark gets the exception anyway.
    """
    py4j = logging.getLogger("py4j")
    if py4j.level == logging.NOTSET:
        py4j.setLevel(logging.WARNING)
    logging.getLogger().addFilter(_is_no_lost_command_of_py4j)


def _is_no_lost_command_of_py4j(record: logging.LogRecord) -> bool:
    return record.msg not in (
        "KeyboardInterrupt while sending command.",
        "Exception while sending command.",
    )


def _check_required(settings: Mapping[str, str]) -> None:
    for key, wanted in _REQUIRED.items():
        if key in settings and settings[key] != wanted:
            message = (
                f"{key} must be {wanted!r} for a micro-batch to be atomic; got {settings[key]!r}"
            )
            raise ConfigurationError(message)


def _submitted() -> dict[str, str]:
    """Return the settings of `spark-submit`, if it started this program."""
    if _GATEWAY not in os.environ:
        return {}
    # Its JVM runs already and has the settings.
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _adopt(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    conf = session.sparkContext.getConf()
    if conf.get("spark.speculation", "false") == "true":
        message = "the existing SparkSession has spark.speculation=true; create it with false"
        raise ConfigurationError(message)
    if conf.get("spark.master", "").startswith("local"):
        # The session may be configured for another Python, which may not have penstock installed.
        session.sparkContext.pythonExec = sys.executable
    ignored = [k for k, v in settings.items() if conf.get(k) != v]
    if ignored:
        logger.warning(
            "A SparkSession exists already, so these settings have no effect: %s",
            ", ".join(sorted(ignored)),
        )
    for key, consequence in _CONSEQUENCES.items():
        wanted = _REQUIRED[key]
        if conf.get(key) != wanted:
            logger.warning(
                "The existing SparkSession has %s=%s instead of %s: %s",
                key,
                conf.get(key, "unset"),
                wanted,
                consequence,
            )
    return session


def check_pyspark(version: str) -> None:
    """Raise if pyspark has another minor version."""
    if not version.startswith(f"{SPARK_MINOR}."):
        message = (
            f"penstock runs on pyspark {SPARK_MINOR}, this is pyspark {version}: "
            f"pip install 'pyspark=={SPARK_MINOR}.*'"
        )
        raise RuntimeSetupError(message)


def check_java() -> None:
    """Raise if there is no Java that Spark can run on."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        problem = f"JAVA_HOME is {home!r} but has no bin/java" if home else "`java` is not on PATH"
    else:
        result = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
        version = java_version(result.stderr + result.stdout)
        if version is None or version >= LOWEST_JAVA:
            return
        problem = f"{java} is Java {version}"
    message = (
        f"Spark needs Java {LOWEST_JAVA} or newer, and {problem}: install a JDK "
        f"(Debian: apt install openjdk-{LOWEST_JAVA}-jre-headless) or set JAVA_HOME"
    )
    raise RuntimeSetupError(message)


def java_version(text: str) -> int | None:
    """Return the major version from the output of `java -version`; 8 for `1.8`."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None
