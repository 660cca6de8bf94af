"""Jobs on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.common.config_options import read
from penstock.common.configuration import Configuration
from penstock.common.known_options import WORK_DIR
from penstock.common.recovery_options import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT
from penstock.graph.groups import Group, Transport
from penstock.graph.plan import Plan
from penstock.ids import StageId
from penstock.job.launch import LaunchedJob, launch
from penstock.spark.python_files import ship_python_files
from penstock.spark.session import open_session
from penstock.spark.submitter import SparkSubmitter
from penstock.spark.transport import settle_transport

_PROPERTIES = (
    "spark.jobGroup.id",
    "spark.job.description",
    "spark.job.interruptOnCancel",
    "spark.scheduler.pool",
)
"""What Spark keeps for each thread about the jobs it submits."""


def launch_on_spark(plan: Plan, configuration: Configuration, batch_mode: bool) -> LaunchedJob:
    """Start a plan on the active SparkSession or one made for it."""
    sessions: list[SparkSession] = []

    def settle(wanted: Transport | None) -> Transport:
        # A restarted job asks again: the session before may have been stopped.
        sessions[:] = [session_for(configuration)]
        ship_python_files(sessions[0], configuration)
        is_temporary = read(configuration, WORK_DIR) is None
        return settle_transport(sessions[0], wanted, work_dir_is_temporary=is_temporary)

    def submitter(
        groups: tuple[Group, ...], job: str, tasks: dict[StageId, bytes]
    ) -> SparkSubmitter:
        return SparkSubmitter(sessions[0], job, groups, tasks)

    with _own_properties():
        return launch(plan, configuration, batch_mode, submitter, settle)


@contextmanager
def _own_properties() -> Iterator[None]:
    """Give the thread that starts a job its own group and pool back.

    Else what the program runs on Spark next would be cancelled with the job.
    """
    before = SparkContext._active_spark_context
    kept = {name: before.getLocalProperty(name) if before else None for name in _PROPERTIES}
    try:
        yield
    finally:
        after = SparkContext._active_spark_context
        for name, value in kept.items() if after else ():
            after.setLocalProperty(name, value)


def session_for(configuration: Configuration) -> SparkSession:
    """Return the session that jobs of this configuration run on."""
    keys = (k for k in configuration.key_set() if k.startswith("spark."))
    settings = {key: str(configuration.get(key)) for key in keys}
    return open_session({**_heartbeats(configuration), **settings})


def _heartbeats(configuration: Configuration) -> dict[str, str]:
    """Return Spark's settings for Flink's heartbeats, where the user set them."""
    given = {k for o in (HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT) for k in (o.key, *o.fallback_keys)}
    if not given & set(configuration.key_set()):
        return {}
    interval = read(configuration, HEARTBEAT_INTERVAL) // timedelta(milliseconds=1)
    timeout = read(configuration, HEARTBEAT_TIMEOUT) // timedelta(milliseconds=1)
    return {
        "spark.executor.heartbeatInterval": f"{interval}ms",
        "spark.network.timeout": f"{timeout}ms",
        # How often Spark looks whether one is overdue.
        "spark.network.timeoutInterval": f"{max(1, timeout // 2)}ms",
    }
