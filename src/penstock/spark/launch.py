"""Jobs on Spark."""

from __future__ import annotations

from pyspark.sql import SparkSession

from penstock.common.configuration import Configuration
from penstock.graph.plan import Plan
from penstock.ids import StageId
from penstock.job.launch import LaunchedJob, launch
from penstock.spark.session import open_session
from penstock.spark.submitter import SparkSubmitter


def launch_on_spark(plan: Plan, configuration: Configuration, batch_mode: bool) -> LaunchedJob:
    """Start a plan on the active SparkSession or one made for it."""

    def submitter(plan: Plan, job: str, tasks: dict[StageId, bytes]) -> SparkSubmitter:
        spark = SparkSubmitter(session_for(configuration), job, tasks)
        for stage in plan.stages:
            spark.prepare(stage)
        return spark

    return launch(plan, configuration, batch_mode, submitter)


def session_for(configuration: Configuration) -> SparkSession:
    """Return the session that jobs of this configuration run on."""
    keys = (k for k in configuration.key_set() if k.startswith("spark."))
    return open_session({key: str(configuration.get(key)) for key in keys})
