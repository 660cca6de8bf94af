"""Finds out what the hosts of executors have in their file systems."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.serializers import NoOpSerializer

from penstock.spark.submit.executors import executors


def missing_on_hosts(context: SparkContext, paths: Sequence[Path]) -> Mapping[Path, str]:
    """Return which paths a host of an executor does not have, with the name of such a host.

    Runs one small task per host; none if tasks run in the driver. The thread that starts a job
    again may have submitted for the attempt that was cancelled, so this has a job group of its own.
    """
    context.setJobGroup(f"penstock-{os.urandom(8).hex()}", "penstock looks at its hosts")
    hosts = _hosts(context)
    if not hosts:
        if context._jsc.sc().isLocal():
            return {}
        context.parallelize((0,), 1).count()  # waits for the first executor
        hosts = _hosts(context)

    def look(index: int, elements: Iterable[object]) -> Iterator[tuple[Path, str]]:
        for _ in elements:
            pass
        return ((path, hosts[index]) for path in paths if not path.exists())

    return dict(one_per_host(context, hosts).mapPartitionsWithIndex(look).collect())


def _hosts(context: SparkContext) -> list[str]:
    return sorted({executor.host for executor in executors(context) if not executor.is_driver})


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
