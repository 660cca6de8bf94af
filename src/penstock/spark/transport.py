"""Whether records of a job travel in files or by Spark's shuffle."""

from __future__ import annotations

import logging
import socket
import time
from dataclasses import dataclass

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.errors import ConfigurationError
from penstock.graph.groups import Transport
from penstock.spark.executors import executors

logger = logging.getLogger("penstock.spark")

_CALM_S = 1.0
_LONGEST_WAIT_S = 5.0
_FIRST_WAIT_S = 30.0

_ATTEMPTS = "spark.stage.maxConsecutiveAttempts"
_DECOMMISSION = "spark.decommission.enabled"
_IGNORED = "spark.stage.ignoreDecommissionFetchFailure"


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What there is to know of where a job's tasks run."""

    is_local: bool
    driver: str
    """The address of its host."""
    executors: frozenset[str]
    """Likewise."""
    unfit: str | None
    """Why this session must not run several stages in one job."""

    @property
    def elsewhere(self) -> list[str]:
        """Where executors are that are not on the driver's host."""
        return sorted(self.executors - {self.driver})


def choose_transport(wanted: Transport | None, facts: ClusterFacts) -> tuple[Transport, str]:
    """Decide how records travel, and say why.

    Raises:
        ConfigurationError: the user wants what this session would do wrong.
    """
    if wanted is Transport.SHUFFLE and facts.unfit is not None:
        message = f"penstock.exchange is 'shuffle', and {facts.unfit}"
        raise ConfigurationError(message)
    if wanted is not None:
        return wanted, "penstock.exchange says so"
    if facts.is_local:
        return Transport.CHANNEL, "everything runs in this process"
    if facts.executors and not facts.elsewhere:
        return Transport.CHANNEL, f"all executors are on the driver's host {facts.driver}"
    if facts.unfit is not None:
        return Transport.CHANNEL, f"{facts.unfit}; its hosts must share the work-dir"
    if not facts.elsewhere:
        return Transport.SHUFFLE, "no executor is known yet"
    return Transport.SHUFFLE, f"executors are on {', '.join(facts.elsewhere)}"


def settle_transport(
    session: SparkSession, wanted: Transport | None, *, work_dir_is_temporary: bool = False
) -> Transport:
    """Decide for a session; called before an attempt's first micro-batch."""
    context = session.sparkContext
    facts = _facts(context, looks=wanted is None or work_dir_is_temporary)
    if work_dir_is_temporary and facts.elsewhere:
        logger.warning(
            "executors are on %s, and the work-dir is a temporary directory of this host: set "
            "penstock.work-dir to a directory that all hosts see",
            ", ".join(facts.elsewhere),
        )
    chosen, why = choose_transport(wanted, facts)
    is_second_best = wanted is None and facts.unfit is not None and not facts.is_local
    level = logging.WARNING if is_second_best else logging.INFO
    logger.log(level, "records travel by %s: %s", chosen.value, why)
    return chosen


def why_unfit(conf: dict[str, str]) -> str | None:
    """Return what forbids a job of several stages in a session with these settings."""
    if conf.get(_ATTEMPTS) != "1":
        return (
            f"the SparkSession has {_ATTEMPTS}={conf.get(_ATTEMPTS, 'unset')} where it must be 1: "
            "a stage that runs again would mix two executions of one micro-batch"
        )
    if conf.get(_DECOMMISSION, "false") == "true" and conf.get(_IGNORED) != "false":
        return (
            f"the SparkSession has {_DECOMMISSION}=true without {_IGNORED}=false: a stage that "
            "runs again would mix two executions of one micro-batch"
        )
    return None


def _facts(context: SparkContext, *, looks: bool) -> ClusterFacts:
    conf = dict(context.getConf().getAll())
    is_local = context.master == "local" or context.master.startswith("local[")
    driver = _address(conf.get("spark.driver.host", "localhost"))
    executors: frozenset[str] = frozenset()
    if looks and not is_local:
        executors = _executors(context, driver)
    return ClusterFacts(is_local, driver, executors, why_unfit(conf))


def _executors(context: SparkContext, driver: str) -> frozenset[str]:
    """Return where executors are, when one is elsewhere or no more seem to come."""
    began = changed = time.monotonic()
    seen: frozenset[str] = frozenset()
    while True:
        now = time.monotonic()
        found = _registered(context)
        if found != seen:
            seen, changed = found, now
        longest = _LONGEST_WAIT_S if seen else _FIRST_WAIT_S
        is_calm = bool(seen) and now - changed > _CALM_S
        if seen - {driver} or is_calm or now - began > longest:
            return seen
        time.sleep(0.1)


def _registered(context: SparkContext) -> frozenset[str]:
    return frozenset(_address(executor.host) for executor in executors(context))


def _address(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host
