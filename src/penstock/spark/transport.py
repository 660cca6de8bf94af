"""Decides whether stages exchange records through channels or through Spark's shuffle."""

from __future__ import annotations

import logging
import socket
import time
from dataclasses import dataclass

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.errors import ConfigurationError
from penstock.graph.regions import Transport
from penstock.spark.submit.executors import executors

logger = logging.getLogger("penstock.spark")

_SETTLING_S = 1.0
_LONGEST_WAIT_S = 5.0
_FIRST_WAIT_S = 30.0

_ATTEMPTS = "spark.stage.maxConsecutiveAttempts"
_DECOMMISSION = "spark.decommission.enabled"
_IGNORED = "spark.stage.ignoreDecommissionFetchFailure"


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """Where the tasks of a job run."""

    is_local: bool
    driver: str
    """The address of the driver's host."""
    executors: frozenset[str]
    """The addresses of the executors' hosts."""
    obstacle: str | None
    """Why this session must not run several stages in one Spark job."""

    @property
    def elsewhere(self) -> list[str]:
        """The hosts of executors other than the driver's host."""
        return sorted(self.executors - {self.driver})


def choose_transport(wanted: Transport | None, facts: ClusterFacts) -> tuple[Transport, str]:
    """Return the kind of exchange, and the reason for it.

    Raises:
        ConfigurationError: the user wants a shuffle, which this session cannot run correctly.
    """
    if wanted is Transport.SHUFFLE and facts.obstacle is not None:
        message = f"penstock.exchange is 'shuffle', and {facts.obstacle}"
        raise ConfigurationError(message)
    if wanted is not None:
        return wanted, "set by penstock.exchange"
    if facts.is_local:
        return Transport.CHANNEL, "everything runs in this process"
    if facts.executors and not facts.elsewhere:
        return Transport.CHANNEL, f"all executors are on the driver's host {facts.driver}"
    if facts.obstacle is not None:
        return Transport.CHANNEL, f"{facts.obstacle}; its hosts must share the work-dir"
    if not facts.elsewhere:
        return Transport.SHUFFLE, "no executor is known yet"
    return Transport.SHUFFLE, f"executors are on {', '.join(facts.elsewhere)}"


def resolve_transport(session: SparkSession, wanted: Transport | None) -> Transport:
    """Decide for a session; called before the first micro-batch of an attempt.

    Waits for executors on a cluster, which are known then.
    """
    facts = _facts(session.sparkContext)
    chosen, reason = choose_transport(wanted, facts)
    is_fallback = wanted is None and facts.obstacle is not None and not facts.is_local
    level = logging.WARNING if is_fallback else logging.INFO
    logger.log(level, "Stages exchange records by %s: %s", chosen.value, reason)
    return chosen


def shuffle_obstacle(conf: dict[str, str]) -> str | None:
    """Return why a session with these settings cannot run several stages in one job."""
    if conf.get(_ATTEMPTS) != "1":
        return (
            f"the SparkSession has {_ATTEMPTS}={conf.get(_ATTEMPTS, 'unset')} where it must be 1: "
            "a Spark stage that runs again would mix two executions of one micro-batch"
        )
    if conf.get(_DECOMMISSION, "false") == "true" and conf.get(_IGNORED) != "false":
        return (
            f"the SparkSession has {_DECOMMISSION}=true without {_IGNORED}=false: a Spark stage "
            "that runs again would mix two executions of one micro-batch"
        )
    return None


def _facts(context: SparkContext) -> ClusterFacts:
    conf = dict(context.getConf().getAll())
    is_local = context.master == "local" or context.master.startswith("local[")
    driver = _address(conf.get("spark.driver.host", "localhost"))
    hosts = _executor_hosts(context, driver) if not is_local else frozenset()
    return ClusterFacts(is_local, driver, hosts, shuffle_obstacle(conf))


def _executor_hosts(context: SparkContext, driver: str) -> frozenset[str]:
    """Return the hosts of executors, once one is remote or no more seem to register."""
    began = changed = time.monotonic()
    seen: frozenset[str] = frozenset()
    while True:
        now = time.monotonic()
        found = frozenset(_address(executor.host) for executor in executors(context))
        if found != seen:
            seen, changed = found, now
        longest = _LONGEST_WAIT_S if seen else _FIRST_WAIT_S
        is_settled = bool(seen) and now - changed > _SETTLING_S
        if seen - {driver} or is_settled or now - began > longest:
            return seen
        time.sleep(0.1)


def _address(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host
