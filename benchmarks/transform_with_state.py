"""PySpark's keyed state: `transformWithState` with rows, in two styles.

`PER_RECORD` reads and writes the state for every record, as Flink's `process_element` does, and
each of these is a round trip to the JVM. `PER_KEY` uses what Spark's signature offers, an iterator
over a key's rows of the micro-batch, and touches the state once per key and micro-batch. Both hand
on every update.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from benchmarks.settings import ROCKSDB
from benchmarks.structured import StructuredQuery

SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


class _Count(StatefulProcessor):  # type: ignore[misc]
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", "seen long")

    def close(self) -> None:
        pass

    def _value(self) -> int:
        held = self._seen.get()
        return 0 if held is None else held[0]


class CountPerRecord(_Count):
    """Touch the state once per record."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timers: Any) -> Iterator[Row]:
        for _ in rows:
            seen = self._value() + 1
            self._seen.update((seen,))
            yield Row(word=key[0], seen=seen)


class CountPerKey(_Count):
    """Touch the state once per key and micro-batch."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timers: Any) -> Iterator[Row]:
        seen = self._value()
        for _ in rows:
            seen += 1
            yield Row(word=key[0], seen=seen)
        self._seen.update((seen,))


def _require_protobuf() -> None:
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        msg = "transformWithState needs protobuf: pip install 'protobuf>=6.33,<7'"
        raise ModuleNotFoundError(msg)


def _query(processor: type[_Count]) -> StructuredQuery:
    def build(words: DataFrame) -> DataFrame:
        return words.groupBy("word").transformWithState(
            processor(), "word string, seen long", "Update", "None"
        )

    return StructuredQuery(build, "update", emits_every_update=True, settings=SETTINGS)


_require_protobuf()
PER_RECORD = _query(CountPerRecord)
PER_KEY = _query(CountPerKey)
