"""A Spark session fit for penstock, and clear words where there can be none."""

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

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from penstock.errors import ConfigurationError, RuntimeSetupError

logger = logging.getLogger("penstock.spark")

SPARK_MINOR = "4.3"
LOWEST_JAVA = 17

DEFAULT_MASTER = "local[*,4]"
"""All cores, and a task is tried four times: plain `local[*]` never retries."""

_DEFAULTS = {
    "spark.app.name": "penstock",
    "spark.master": DEFAULT_MASTER,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.locality.wait": "300ms",
    "spark.python.worker.reuse": "true",
    # Over TCP every task waits some 40 ms for a delayed acknowledgement of its small writes.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    "spark.python.daemon.module": "penstock.spark.daemon",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # A task goes to its state, not to where most of its input was made.
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

_WHY = {
    "spark.scheduler.mode": "stages may wait for each other",
    "spark.stage.maxConsecutiveAttempts": "a DataFrame source that loses its shuffle files may "
    "mix two executions of what is random in it, and penstock.exchange cannot be 'shuffle'",
}


def open_session(settings: Mapping[str, str]) -> SparkSession:
    """Return the active session, or a new one with these `spark.*` settings.

    Raises:
        RuntimeSetupError: Java or pyspark are missing or of the wrong version.
        ConfigurationError: a setting would break exactly-once.
    """
    check_pyspark(pyspark.__version__)
    _check_required(settings)
    if SparkContext._active_spark_context is not None:
        return _adopt(SparkSession.builder.getOrCreate(), settings)
    check_java()
    submitted = _submitted()
    _check_required(submitted)
    # Workers must run the Python that pickled the functions.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = {**_DEFAULTS, **submitted, **settings, **_REQUIRED}
    if chosen["spark.master"].startswith("local"):
        # Nobody else has to reach this driver; Spark need not guess an address and warn of it.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if _LOG_LEVEL not in chosen:
        quiet = f"-Dlog4j2.configurationFile={_QUIET.as_uri()}"
        chosen[_JVM_OPTIONS] = " ".join(filter(None, [chosen.get(_JVM_OPTIONS), quiet]))
    builder = SparkSession.builder
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _check_required(settings: Mapping[str, str]) -> None:
    for key, wanted in _REQUIRED.items():
        if key in settings and settings[key] != wanted:
            message = (
                f"{key} must be {wanted!r} for a micro-batch to be atomic; got {settings[key]!r}"
            )
            raise ConfigurationError(message)


def _submitted() -> dict[str, str]:
    """Return what `spark-submit` was told, if it started this program."""
    if _GATEWAY not in os.environ:
        return {}
    # Its JVM is there already, and knows.
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _adopt(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    conf = session.sparkContext.getConf()
    if conf.get("spark.speculation", "false") == "true":
        message = "the existing SparkSession has spark.speculation=true; penstock needs it off"
        raise ConfigurationError(message)
    if conf.get("spark.master", "").startswith("local"):
        # The session may have been made for another Python, which need not know penstock.
        session.sparkContext.pythonExec = sys.executable
    ignored = [k for k, v in settings.items() if conf.get(k) != v]
    if ignored:
        logger.warning(
            "a SparkSession exists already; these settings do not take effect: %s",
            ", ".join(sorted(ignored)),
        )
    for key, why in _WHY.items():
        wanted = _REQUIRED[key]
        if conf.get(key) != wanted:
            logger.warning(
                "the existing SparkSession has %s=%s where penstock wants %s: %s",
                key,
                conf.get(key, "unset"),
                wanted,
                why,
            )
    return session


def check_pyspark(version: str) -> None:
    """Refuse a pyspark of another minor version."""
    if not version.startswith(f"{SPARK_MINOR}."):
        message = (
            f"penstock runs on pyspark {SPARK_MINOR}, this is pyspark {version}: "
            f"pip install 'pyspark=={SPARK_MINOR}.*'"
        )
        raise RuntimeSetupError(message)


def check_java() -> None:
    """Refuse to start without a Java that Spark can run on."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = (
            f"JAVA_HOME is {home!r} but has no bin/java" if home else "there is no `java` on PATH"
        )
        message = (
            f"Spark needs Java {LOWEST_JAVA} or newer, and {where}: install a JDK "
            f"(Debian: apt install openjdk-{LOWEST_JAVA}-jre-headless) or set JAVA_HOME"
        )
        raise RuntimeSetupError(message)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = java_version(said.stderr + said.stdout)
    if version is not None and version < LOWEST_JAVA:
        message = (
            f"Spark needs Java {LOWEST_JAVA} or newer, and {java} is Java {version}: install a "
            f"newer JDK (Debian: apt install openjdk-{LOWEST_JAVA}-jre-headless) or point "
            "JAVA_HOME at one"
        )
        raise RuntimeSetupError(message)


def java_version(said: str) -> int | None:
    """Return the major version out of what `java -version` prints; 8 for `1.8`."""
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else None
