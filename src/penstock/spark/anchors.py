"""Anchors: small cached RDDs that bring a subtask back to where it ran before.

Spark runs a task where the cached block it reads is. An anchor holds nothing else. When
executors have come, anchors are made anew so that some of their blocks are there.
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

from penstock.spark.executors import executors, names_of_executors
from penstock.spark.spreading import Newcomers, spread

logger = logging.getLogger("penstock.spark")


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
        self._plain: dict[int, RDD[Any]] = {}
        self._meetings: dict[int, Meeting] = {}
        self._lock = threading.Lock()
        self._newcomers = Newcomers(lambda: names_of_executors(context))
        self._left: list[Any] = []
        """In the JVM: anchors of earlier generations, which running jobs may still use."""
        self.generation = 0
        """Grows when anchors are made anew: who has one should ask for it again."""

    def follow_executors(self) -> None:
        """Make anchors anew if executors have come; called before every micro-batch."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._newcomers.have_come():
                self._spread()
        except Exception as error:
            # Where subtasks run is a matter of speed alone.
            logger.warning("subtasks stay where they are, though executors have come: %s", error)
        finally:
            self._lock.release()

    def plain(self, width: int) -> RDD[Any]:
        """Return an anchor with so many partitions."""
        with self._lock:
            if width not in self._plain:
                self._plain[width] = self._new_plain(width)
            return self._plain[width]

    def meeting(self, width: int) -> Meeting:
        """Return an anchor with so many partitions that `meet` can use."""
        with self._lock:
            if width not in self._meetings:
                self._meetings[width] = self._new_meeting(width)
            return self._meetings[width]

    def meet(self, parcels: RDD[bytes], anchor: Meeting) -> tuple[RDD[bytes], int]:
        """Shuffle: the elements of `parcels` are a partition, a parcel, a partition, and so on.

        Returns what comes out, and the number of the shuffle, for `forget`.

        Both have one partitioner, so Spark reads them in the same task, and prefers the host of
        the anchor's block for it. A shuffle that has run is never run again: it is built anew
        for each job.
        """
        shuffled = self._pairs(parcels, anchor.partitioner)
        number: int = shuffled.rdd().dependencies().head().shuffleId()
        return self._values(anchor.pairs.union(shuffled)), number

    def forget(self, shuffles: Iterable[int]) -> None:
        """Remove what was shuffled; not what a DataFrame of the user's has shuffled itself."""
        with contextlib.suppress(Exception):
            cleaner: Any = self._context._jsc.sc().cleaner().get()
            for number in shuffles:
                cleaner.doCleanupShuffle(number, False)

    def close(self) -> None:
        """Let Spark forget them."""
        with contextlib.suppress(Exception):
            mine = [plain._jrdd for plain in self._plain.values()]
            mine += [meeting.pairs for meeting in self._meetings.values()]
            for anchor in (*mine, *self._left):
                anchor.unpersist(False)
                anchor.rdd().cleanShuffleDependencies(False)

    def _spread(self) -> None:
        room: Counter[str] = Counter()
        for executor in executors(self._context):
            room[executor.host] += executor.cores
        # Spark remembers from the submission of a job where blocks were then.
        self._anywhere(1)._jrdd.count()
        moved = 0
        for width, plain in list(self._plain.items()):
            homes = self._homes(plain._jrdd, width)
            hosts = spread(homes, room)
            if hosts != homes:
                self._plain[width] = self._new_plain(width, hosts)
                self._left.append(plain._jrdd)
                moved += _differences(homes, hosts)
        for width, meeting in list(self._meetings.items()):
            homes = self._homes(meeting.pairs, width)
            hosts = spread(homes, room)
            if hosts != homes:
                self._meetings[width] = self._new_meeting(width, hosts)
                self._left.append(meeting.pairs)
                moved += _differences(homes, hosts)
        if moved:
            self.generation += 1
            logger.info("executors have come, and %d places of subtasks move there", moved)

    def _homes(self, anchor: Any, width: int) -> list[str | None]:
        """Return the host of each partition's block, None where there is none."""
        spark: Any = self._context._jsc.sc()
        homes: list[str | None] = []
        for partition in range(width):
            # "executor_<host>_<id>" where a block is cached
            named: str = spark.getPreferredLocs(anchor.rdd(), partition).mkString(",")
            block = named.partition(",")[0].removeprefix("executor_")
            homes.append(block.rpartition("_")[0] or None)
        return homes

    def _on(self, hosts: Sequence[str]) -> RDD[Any]:
        """Return an RDD with a partition and an element for each, which would like to be there."""
        jvm: Any = self._context._jvm
        spark: Any = self._context._jsc.sc()

        def sequence(elements: Iterable[object]) -> Any:
            listed = jvm.java.util.ArrayList()
            for element in elements:
                listed.add(element)
            return jvm.PythonUtils.toSeq(listed)

        wishes = sequence(jvm.scala.Tuple2(b"", sequence([host])) for host in hosts)
        made = spark.makeRDD(wishes, self._context.emptyRDD()._jrdd.classTag())
        return RDD(made.toJavaRDD(), self._context, NoOpSerializer())

    def _new_plain(self, width: int, hosts: Sequence[str] | None = None) -> RDD[Any]:
        anchor = self._anywhere(width) if hosts is None else self._on(hosts)
        anchor.cache()._jrdd.count()
        return anchor

    def _new_meeting(self, width: int, hosts: Sequence[str] | None = None) -> Meeting:
        jvm: Any = self._context._jvm
        # Spark compares partitioners by this number, and Python's ids are all above it.
        partitioner = jvm.PythonPartitioner(width, 0)
        seed = raw(self._anywhere(width), _one_empty_element)
        pairs = self._pairs(seed, partitioner).cache()
        # A block stays where it was first made, so it is made together with what is there.
        (pairs if hosts is None else self._on(hosts)._jrdd.zip(pairs)).count()
        return Meeting(partitioner, pairs, self._values(pairs))

    def _anywhere(self, width: int) -> RDD[Any]:
        return self._context.parallelize(range(width), width)

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


def _differences(homes: Sequence[str | None], hosts: Sequence[str]) -> int:
    return sum(home != host for home, host in zip(homes, hosts, strict=True))


def _one_empty_element(index: int, seed: Iterable[object]) -> Iterator[bytes]:
    drain(seed)
    yield pack_long(index)
    yield b""
