"""Finds out what the hosts of executors have in their file systems."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import RDD, SparkContext
from pyspark.serializers import NoOpSerializer

from penstock.spark.submit.executors import executors
from penstock.task.executor_id import executor_id

logger = logging.getLogger("penstock.spark")

_TRIES = 3


class Seen(NamedTuple):
    """What a task has found out about its host."""

    executor: str
    """The id of its executor, empty if that is unknown."""
    host: str
    """As the host names itself."""
    missing: tuple[Path, ...]
    """Paths that do not exist there."""


def missing_on_hosts(context: SparkContext, paths: Sequence[Path]) -> Mapping[Path, str]:
    """Return which paths a host of an executor does not have, with the name of such a host.

    Runs a small task on each host; none if tasks run in the driver. The thread that starts a job
    again may have submitted for the attempt that was cancelled, so this has a job group of its own.
    """
    context.setJobGroup(f"penstock-{os.urandom(8).hex()}", "penstock looks at its hosts")
    if not _hosts(context):
        if context._jsc.sc().isLocal():
            return {}
        context.parallelize((0,), 1).count()  # waits for the first executor

    def look(elements: Iterable[object]) -> Iterator[Seen]:
        for _ in elements:
            pass
        missing = tuple(path for path in paths if not path.exists())
        yield Seen(executor_id(), socket.gethostname(), missing)

    def look_from(hosts: Sequence[str]) -> list[Seen]:
        seen: list[Seen] = one_per_host(context, hosts).mapPartitions(look).collect()
        return seen

    return look_at_hosts(lambda: _hosts(context), look_from)


def look_at_hosts(
    executors: Callable[[], Mapping[str, str]], look_from: Callable[[Sequence[str]], list[Seen]]
) -> Mapping[Path, str]:
    """Return the paths that are missing, with a host that lacks it.

    ``executors`` returns the host of each executor. ``look_from`` runs tasks that prefer some
    hosts: Spark runs them elsewhere if those are busy. So it is called again for hosts that were
    not reached.
    """
    missing: dict[Path, str] = {}
    reached: set[str] = set()
    left: list[str] = []
    for _ in range(_TRIES):
        known = executors()
        left = sorted(set(known.values()) - reached)
        if not left:
            return missing
        for preferred, seen in zip(left, look_from(left), strict=True):
            # Without an id it is not known where the task ran.
            host = known.get(seen.executor) if seen.executor else preferred
            if host is not None:
                reached.add(host)
            missing.update((path, known.get(seen.executor, seen.host)) for path in seen.missing)
    if left := sorted(set(left) - reached):
        logger.warning(
            "Hosts %s were too busy to be looked at: it is assumed that they see the paths which "
            "the others see.",
            ", ".join(left),
        )
    return missing


def _hosts(context: SparkContext) -> dict[str, str]:
    return {e.id: e.host for e in executors(context) if not e.is_driver}


def one_per_host(context: SparkContext, hosts: Sequence[str]) -> RDD[Any]:
    """Return an RDD with a partition and an element for each host, preferred to be there."""
    jvm: Any = context._jvm
    spark: Any = context._jsc.sc()

    def sequence(elements: Iterable[object]) -> Any:
        listed = jvm.java.util.ArrayList()
        for element in elements:
            listed.add(element)
        return jvm.PythonUtils.toSeq(listed)

    preferred = sequence(jvm.scala.Tuple2(b"", sequence([host])) for host in hosts)
    made = spark.makeRDD(preferred, context.emptyRDD()._jrdd.classTag())
    return RDD(made.toJavaRDD(), context, NoOpSerializer())
