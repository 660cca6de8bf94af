"""Launches jobs on Spark."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.common.config.pipeline_options import PYTHON_FILES
from penstock.common.config.recovery_options import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT
from penstock.common.config_options import read
from penstock.common.configuration import Configuration
from penstock.common.live_figures import ExecutorInfo
from penstock.errors import InvalidJobError
from penstock.graph.plan import Plan
from penstock.graph.regions import PipelinedRegion, Transport
from penstock.ids import StageId
from penstock.job.figures.cluster import ClusterInfo
from penstock.job.launch import launch
from penstock.job.launched_job import LaunchedJob
from penstock.spark.session import open_session
from penstock.spark.state.session import register
from penstock.spark.submit.executors import executors
from penstock.spark.submit.hosts import missing_on_hosts
from penstock.spark.submit.submitter import SparkSubmitter
from penstock.spark.transport import resolve_transport

_PROPERTIES = (
    "spark.jobGroup.id",
    "spark.job.description",
    "spark.job.interruptOnCancel",
    "spark.scheduler.pool",
)
"""The properties of the jobs that a thread submits, which Spark keeps for each thread."""

_shipped: set[tuple[str, str]] = set()
"""Files that a Spark application has already: Spark accepts a file only once."""


def launch_on_spark(plan: Plan, configuration: Configuration, batch_mode: bool) -> LaunchedJob:
    """Start a plan on the active SparkSession, or on a new one."""
    sessions: list[SparkSession] = []

    def resolve(wanted: Transport | None) -> Transport:
        # Called for each attempt: the session of the last one may have been stopped.
        sessions[:] = [session_for(configuration)]
        _ship_python_files(sessions[0], configuration)
        return resolve_transport(sessions[0], wanted)

    def submitter(
        regions: tuple[PipelinedRegion, ...], job: str, tasks: dict[StageId, bytes], stay: bool
    ) -> SparkSubmitter:
        return SparkSubmitter(sessions[0], job, regions, tasks, stay=stay)

    def missing(paths: Sequence[Path]) -> Mapping[Path, str]:
        return missing_on_hosts(sessions[0].sparkContext, paths)

    def cluster() -> ClusterInfo:
        context = sessions[0].sparkContext
        found = [
            ExecutorInfo(
                e.id, e.host, e.cores, memory_bytes=e.memory, memory_used_bytes=e.memory_used
            )
            for e in executors(context)
        ]
        return ClusterInfo(found, context.uiWebUrl or "")

    with _restored_properties():
        return launch(plan, configuration, batch_mode, submitter, resolve, missing, cluster=cluster)


@contextmanager
def _restored_properties() -> Iterator[None]:
    """Restore the job group and pool of the thread that starts a job.

    Otherwise the jobs that the program runs on Spark next would be cancelled with this job.
    """
    before = SparkContext._active_spark_context
    properties = {name: before.getLocalProperty(name) if before else None for name in _PROPERTIES}
    try:
        yield
    finally:
        after = SparkContext._active_spark_context
        for name, value in properties.items() if after else ():
            after.setLocalProperty(name, value)


def session_for(configuration: Configuration) -> SparkSession:
    """Return the session that jobs of this configuration run on."""
    keys = (k for k in configuration.key_set() if k.startswith("spark."))
    settings = {key: str(configuration.get(key)) for key in keys}
    session = open_session({**_heartbeats(configuration), **settings})
    register(session, configuration)
    return session


def _heartbeats(configuration: Configuration) -> dict[str, str]:
    """Return Spark's settings for Flink's heartbeat options, if the user set any."""
    options = (HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT)
    keys = {key for option in options for key in (option.key, *option.fallback_keys)}
    if not keys & set(configuration.key_set()):
        return {}
    interval = read(configuration, HEARTBEAT_INTERVAL) // timedelta(milliseconds=1)
    timeout = read(configuration, HEARTBEAT_TIMEOUT) // timedelta(milliseconds=1)
    return {
        "spark.executor.heartbeatInterval": f"{interval}ms",
        "spark.network.timeout": f"{timeout}ms",
        # How often Spark checks for overdue heartbeats.
        "spark.network.timeoutInterval": f"{max(1, timeout // 2)}ms",
    }


def _ship_python_files(session: SparkSession, configuration: Configuration) -> None:
    """Ship the files of `python.files` to Spark, so that every worker can import from them.

    Raises:
        InvalidJobError: a file does not exist.
    """
    context = session.sparkContext
    for file in read(configuration, PYTHON_FILES):
        name = (str(context.applicationId), file)
        if name not in _shipped:
            context.addPyFile(_importable(file))
            _shipped.add(name)


def _importable(file: str) -> str:
    """Return a file that workers can import from; a directory or wheel becomes a zip file."""
    if "://" in file:
        return file
    path = Path(file)
    if not path.exists():
        message = f"add_python_file(): {file!r} does not exist"
        raise InvalidJobError(message)
    archive = Path(tempfile.mkdtemp(prefix="penstock-python-")) / path.stem
    if path.is_dir():
        return shutil.make_archive(str(archive), "zip", path)
    if path.suffix == ".whl":
        return shutil.copy(path, f"{archive}.zip")
    return file
