"""Anchors: small cached RDDs that make Spark run a subtask where it ran before.

Spark prefers to run a task where the cached block that it reads is, and an anchor has one tiny
block per subtask. When new executors have joined, anchors are built again to move some of the
blocks there.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.serializers import NoOpSerializer, pack_long

from penstock.spark.submit.executors import executor_names, executors
from penstock.spark.submit.hosts import one_per_host
from penstock.spark.submit.placement import ExecutorWatch, place_partitions

logger = logging.getLogger("penstock.spark")


@dataclass(frozen=True, slots=True)
class ShuffleAnchor:
    """An anchor with a partitioner, so that it can be the target of a shuffle."""

    partitioner: Any
    pairs: Any
    """In the JVM: cached, one empty element for each partition."""
    rdd: RDD[bytes]
    """The same without keys."""


class Anchors:
    """The anchors of one job, each built when it is first needed.

    The threads of all regions use it; a lock guards the anchors.
    """

    def __init__(self, context: SparkContext) -> None:
        self.context = context
        self._plain: dict[int, RDD[Any]] = {}
        self._for_shuffle: dict[int, ShuffleAnchor] = {}
        self._lock = threading.Lock()
        self._executors = ExecutorWatch(lambda: executor_names(context))
        self._replaced: list[Any] = []
        """In the JVM: anchors of earlier generations, which running jobs may still use."""
        self.generation = 0
        """Grows when anchors were built again: users of an anchor should get it again."""

    def follow_executors(self) -> None:
        """Build anchors again if executors have joined; called before every micro-batch."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._executors.have_joined():
                self._spread()
        except Exception as error:
            # Where subtasks run only affects speed.
            logger.warning("Subtasks were not moved to the executors that joined: %s", error)
        finally:
            self._lock.release()

    def plain(self, width: int) -> RDD[Any]:
        """Return an anchor with this many partitions."""
        with self._lock:
            if width not in self._plain:
                self._plain[width] = self._new_plain(width)
            return self._plain[width]

    def for_shuffle(self, width: int) -> ShuffleAnchor:
        """Return an anchor with this many partitions, for `shuffle`."""
        with self._lock:
            if width not in self._for_shuffle:
                self._for_shuffle[width] = self._new_shuffle_anchor(width)
            return self._for_shuffle[width]

    def shuffle(self, records: RDD[bytes], anchor: ShuffleAnchor) -> tuple[RDD[bytes], int]:
        """Shuffle records to the partitions of an anchor.

        The elements of `records` are a partition, a record, a partition, a record, and so on.
        Returns the RDD after the shuffle, and the shuffle's id, for `remove_shuffles`.

        Records and anchor have the same partitioner, so Spark reads them in the same task, and
        prefers the host of the anchor's block for it. Spark never runs a finished shuffle again,
        so each job builds its own.
        """
        shuffled = self._pairs(records, anchor.partitioner)
        shuffle_id: int = shuffled.rdd().dependencies().head().shuffleId()
        return self._values(anchor.pairs.union(shuffled)), shuffle_id

    def remove_shuffles(self, shuffles: Iterable[int]) -> None:
        """Remove the files of shuffles; those of the user's own DataFrames stay."""
        with contextlib.suppress(Exception):
            cleaner: Any = self.context._jsc.sc().cleaner().get()
            for shuffle_id in shuffles:
                cleaner.doCleanupShuffle(shuffle_id, False)

    def close(self) -> None:
        """Remove all anchors from Spark's cache."""
        with contextlib.suppress(Exception):
            current = [plain._jrdd for plain in self._plain.values()]
            current += [anchor.pairs for anchor in self._for_shuffle.values()]
            for anchor in (*current, *self._replaced):
                anchor.unpersist(False)
                anchor.rdd().cleanShuffleDependencies(False)

    def _spread(self) -> None:
        cores: Counter[str] = Counter()
        for executor in executors(self.context):
            cores[executor.host] += executor.cores
        # Spark caches block locations when a job is submitted: this job refreshes them.
        self._anywhere(1)._jrdd.count()
        moved = 0

        def new_hosts(anchor: Any, width: int) -> list[str] | None:
            nonlocal moved
            homes = self._homes(anchor, width)
            hosts = place_partitions(homes, cores)
            if hosts == homes:
                return None
            self._replaced.append(anchor)
            moved += sum(home != host for home, host in zip(homes, hosts, strict=True))
            return hosts

        for width, plain in list(self._plain.items()):
            if (hosts := new_hosts(plain._jrdd, width)) is not None:
                self._plain[width] = self._new_plain(width, hosts)
        for width, anchor in list(self._for_shuffle.items()):
            if (hosts := new_hosts(anchor.pairs, width)) is not None:
                self._for_shuffle[width] = self._new_shuffle_anchor(width, hosts)
        if moved:
            self.generation += 1
            logger.info("Executors joined: %d subtasks move there.", moved)

    def _homes(self, anchor: Any, width: int) -> list[str | None]:
        """Return the host of each partition's block, None where there is none."""
        spark: Any = self.context._jsc.sc()
        homes: list[str | None] = []
        for partition in range(width):
            # "executor_<host>_<id>" where a block is cached
            named: str = spark.getPreferredLocs(anchor.rdd(), partition).mkString(",")
            block = named.partition(",")[0].removeprefix("executor_")
            homes.append(block.rpartition("_")[0] or None)
        return homes

    def _new_plain(self, width: int, hosts: Sequence[str] | None = None) -> RDD[Any]:
        anchor = self._anywhere(width) if hosts is None else one_per_host(self.context, hosts)
        anchor.cache()._jrdd.count()
        return anchor

    def _new_shuffle_anchor(self, width: int, hosts: Sequence[str] | None = None) -> ShuffleAnchor:
        jvm: Any = self.context._jvm
        # Spark compares partitioners by this number, and the ids of Python functions are above 0.
        partitioner = jvm.PythonPartitioner(width, 0)
        empty = map_to_bytes(self._anywhere(width), _one_empty_element)
        pairs = self._pairs(empty, partitioner).cache()
        # A block stays where it is first computed, so it is computed in a task on its host.
        (pairs if hosts is None else one_per_host(self.context, hosts)._jrdd.zip(pairs)).count()
        return ShuffleAnchor(partitioner, pairs, self._values(pairs))

    def _anywhere(self, width: int) -> RDD[Any]:
        return self.context.parallelize(range(width), width)

    def _pairs(self, records: RDD[bytes], partitioner: Any) -> Any:
        jvm: Any = self.context._jvm
        return jvm.PairwiseRDD(records._jrdd.rdd()).asJavaPairRDD().partitionBy(partitioner)

    def _values(self, pairs: Any) -> RDD[bytes]:
        jvm: Any = self.context._jvm
        return RDD(jvm.PythonRDD.valueOfPair(pairs), self.context, NoOpSerializer())


def map_to_bytes(rdd: RDD[Any], function: Any) -> RDD[bytes]:
    """Map partitions with their index to elements that are bytes, sent without serialization."""
    mapped: RDD[bytes] = rdd.mapPartitionsWithIndex(function)
    mapped._bypass_serializer = True
    return mapped


def drain(elements: Iterable[object]) -> None:
    """Read all input: Spark discards a Python worker that leaves input of its task unread."""
    for _ in elements:
        pass


def _one_empty_element(index: int, elements: Iterable[object]) -> Iterator[bytes]:
    drain(elements)
    yield pack_long(index)
    yield b""
