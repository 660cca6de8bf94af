"""Anchors: small cached RDDs that bring a subtask back to where it ran before.

Spark runs a task where the cached block it reads is. An anchor holds nothing else.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.serializers import NoOpSerializer, pack_long


@dataclass(frozen=True, slots=True)
class Meeting:
    """An anchor with a partitioner, so that a shuffle can come to it."""

    partitioner: Any
    pairs: Any
    """In the JVM: cached, one empty element for each partition."""
    rdd: RDD[bytes]
    """The same without keys."""


class Anchors:
    """The anchors of one job, made when they are first asked for."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._plain: dict[int, RDD[int]] = {}
        self._meetings: dict[int, Meeting] = {}
        self._lock = threading.Lock()

    def plain(self, width: int) -> RDD[int]:
        """Return an anchor with so many partitions."""
        with self._lock:
            if width not in self._plain:
                anchor = self._context.parallelize(range(width), width).cache()
                anchor.count()
                self._plain[width] = anchor
            return self._plain[width]

    def meeting(self, width: int) -> Meeting:
        """Return an anchor with so many partitions that `meet` can use."""
        with self._lock:
            if width not in self._meetings:
                self._meetings[width] = self._new_meeting(width)
            return self._meetings[width]

    def meet(self, parcels: RDD[bytes], anchor: Meeting) -> RDD[bytes]:
        """Shuffle: the elements of `parcels` are a partition, a parcel, a partition, and so on.

        Both have one partitioner, so Spark reads them in the same task, and prefers the host of
        the anchor's block for it. A shuffle that has run is never run again: it is built anew
        for each job.
        """
        joined = anchor.pairs.union(self._pairs(parcels, anchor.partitioner))
        return self._values(joined)

    def close(self) -> None:
        """Let Spark forget them."""
        with contextlib.suppress(Exception):
            for plain in self._plain.values():
                plain.unpersist()
            for meeting in self._meetings.values():
                meeting.pairs.unpersist(False)
                meeting.pairs.rdd().cleanShuffleDependencies(False)

    def _new_meeting(self, width: int) -> Meeting:
        jvm: Any = self._context._jvm
        # Spark compares partitioners by this number, and Python's ids are all above it.
        partitioner = jvm.PythonPartitioner(width, 0)
        seed = raw(self._context.parallelize(range(width), width), _one_empty_element)
        pairs = self._pairs(seed, partitioner).cache()
        pairs.count()
        return Meeting(partitioner, pairs, self._values(pairs))

    def _pairs(self, parcels: RDD[bytes], partitioner: Any) -> Any:
        jvm: Any = self._context._jvm
        return jvm.PairwiseRDD(parcels._jrdd.rdd()).asJavaPairRDD().partitionBy(partitioner)

    def _values(self, pairs: Any) -> RDD[bytes]:
        jvm: Any = self._context._jvm
        return RDD(jvm.PythonRDD.valueOfPair(pairs), self._context, NoOpSerializer())


def raw(rdd: RDD[Any], function: Any) -> RDD[bytes]:
    """Map partitions with their index to elements that are bytes and travel as they are."""
    mapped: RDD[bytes] = rdd.mapPartitionsWithIndex(function)
    mapped._bypass_serializer = True
    return mapped


def drain(anchor: Iterable[object]) -> None:
    """Read what Spark sends: a worker that leaves input unread is thrown away after its task."""
    for _ in anchor:
        pass


def _one_empty_element(index: int, seed: Iterable[int]) -> Iterator[bytes]:
    drain(seed)
    yield pack_long(index)
    yield b""
