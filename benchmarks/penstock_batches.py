"""penstock: the same count as a function of record batches, which touches state once per key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.penstock_keyed import KEYED_STEP, PenstockContender, words
from penstock.common import Types
from penstock.datastream import ColumnKey, KeyedBatchFunction, StreamExecutionEnvironment
from penstock.datastream.functions import RuntimeContext
from penstock.datastream.state import ValueStateDescriptor


class CountBatches(KeyedBatchFunction):
    """Count the records of each key and hand on every update."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_batch(
        self, batch: pa.RecordBatch, ctx: KeyedBatchFunction.Context
    ) -> Iterable[pa.RecordBatch]:
        keys = ctx.keys
        before = self._seen.get_many(keys).fill_null(0).to_numpy()
        rows, starts = keys.groups()
        counts = np.diff(starts, append=len(rows))
        self._seen.put_many(keys, before + counts)
        # What a key had before, and the how manieth of its key a record is.
        seen = np.empty(len(rows), np.int64)
        seen[rows] = np.arange(1, len(rows) + 1) + np.repeat(before - starts, counts)
        yield pa.RecordBatch.from_arrays([batch.column(0), pa.array(seen)], ["f0", "f1"])


@dataclass(frozen=True)
class BatchContender(PenstockContender):
    """The count as a function of record batches."""

    def updates(self, env: StreamExecutionEnvironment, directory: str) -> Any:
        return (
            words(env, directory)
            .key_by(ColumnKey(), key_type=Types.STRING())
            .process_batch(CountBatches(), Types.TUPLE([Types.STRING(), Types.LONG()]))
            .name(KEYED_STEP)
            .uid(KEYED_STEP)
        )


HASHMAP = BatchContender("hashmap")
ROCKSDB = BatchContender("rocksdb")
