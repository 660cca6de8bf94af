"""Steps over record batches give what those per record give, and fail with a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Row, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import (
    BatchFunction,
    ColumnKey,
    DataStream,
    KeyedBatchFunction,
    KeyedProcessFunction,
    ProcessFunction,
    RuntimeContext,
    RuntimeExecutionMode,
)
from penstock.datastream.state import (
    ListStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.errors import InvalidJobError, StepError, UserFunctionError
from tests.unit.support import collected, environment

SALE = Types.ROW_NAMED(["shop", "amount"], [Types.STRING(), Types.LONG()])
TOTAL = Types.ROW_NAMED(["shop", "total", "count"], [Types.STRING(), Types.LONG(), Types.LONG()])
SUMS = Types.TUPLE([Types.LONG(), Types.LONG()])


class Totals(KeyedProcessFunction[Any, Any, Any]):
    """Adds up, record by record."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sums = runtime_context.get_state(ValueStateDescriptor("sums", SUMS))

    def process_element(self, value: Row, ctx: Any) -> Iterator[Row]:
        total, count = self.sums.value() or (0, 0)
        total, count = total + value["amount"], count + 1
        self.sums.update((total, count))
        yield Row(value["shop"], total, count)


class BatchTotals(KeyedBatchFunction):
    """Adds up, a micro-batch at a time, and gives every step of it too."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sums = runtime_context.get_state(ValueStateDescriptor("sums", SUMS))

    def process_batch(
        self, batch: pa.RecordBatch, ctx: KeyedBatchFunction.Context
    ) -> Iterable[pa.RecordBatch]:
        keys = ctx.keys
        held = self.sums.get_many(keys)
        totals = [0 if t is None else t for t in held.field(0).to_pylist()]
        counts = [0 if c is None else c for c in held.field(1).to_pylist()]
        out_totals, out_counts = [], []
        amounts = batch.column("amount").to_pylist()
        for place, amount in zip(keys.index.to_pylist(), amounts, strict=True):
            totals[place] += amount
            counts[place] += 1
            out_totals.append(totals[place])
            out_counts.append(counts[place])
        self.sums.put_many(keys, [{"f0": t, "f1": c} for t, c in zip(totals, counts, strict=True)])
        yield pa.RecordBatch.from_arrays(
            [batch.column("shop"), pa.array(out_totals), pa.array(out_counts)],
            ["shop", "total", "count"],
        )


class Doubled(BatchFunction):
    """Doubles a column of numbers."""

    def process_batch(
        self, batch: pa.RecordBatch, ctx: BatchFunction.Context
    ) -> Iterable[pa.RecordBatch]:
        yield batch.set_column(1, "amount", pc.multiply(batch.column("amount"), 2))


def sales(records: list[tuple[str, int]], parallelism: int = 2, **settings: str) -> DataStream:
    env = environment(
        parallelism,
        penstock__micro_batch__max_records="7",
        penstock__micro_batch__initial_records="7",
        **settings,
    )
    rows = [Row(shop, amount) for shop, amount in records]
    return env.from_collection(rows, SALE)


def rows(stream: DataStream) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in collected(stream))


RECORDS = st.lists(
    st.tuples(st.sampled_from(["", "a", "b", "c\0d", "é"]), st.integers(-(2**40), 2**40)),
    max_size=40,
)
KEYS: dict[str, Any] = {"lambda": lambda row: row["shop"], "column": ColumnKey("shop")}


@pytest.mark.parametrize("key", KEYS)
@settings(max_examples=15, deadline=None)
@given(records=RECORDS)
def test_a_batch_function_has_the_results_of_the_function_per_record(
    key: str, records: list[tuple[str, int]]
) -> None:
    if not records:
        return
    by_record = sales(records).key_by(KEYS[key], Types.STRING()).process(Totals(), TOTAL)
    by_batch = sales(records).key_by(KEYS[key], Types.STRING()).process_batch(BatchTotals(), TOTAL)
    assert rows(by_batch) == rows(by_record)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_state_is_the_same_for_both_kinds_of_function_over_backends(backend: str) -> None:
    records = [(f"shop-{number % 5}", number) for number in range(60)]
    stream = sales(records, state__backend__type=backend)
    keyed = stream.key_by(ColumnKey("shop"), Types.STRING())
    by_batch = rows(keyed.process_batch(BatchTotals(), TOTAL))
    by_record = rows(sales(records).key_by(lambda r: r["shop"]).process(Totals(), TOTAL))
    assert by_batch == by_record


def test_batches_and_records_follow_each_other_in_a_chain() -> None:
    records = [("a", 1), ("b", 2), ("a", 3)] * 5
    stream = (
        sales(records)
        .map(lambda row: Row(row["shop"], row["amount"] + 1), SALE)
        .process_batch(Doubled(), SALE)
        .process_batch(Doubled(), SALE)
        .filter(lambda row: row["shop"] == "a")
        .key_by(ColumnKey("shop"), Types.STRING())
        .process_batch(BatchTotals(), TOTAL)
        .map(lambda row: row["total"], Types.LONG())
    )
    amounts = [4 * (amount + 1) for shop, amount in records if shop == "a"]
    assert max(collected(stream)) == sum(amounts)


def test_batches_stay_columns_through_an_exchange_to_another_batch_step() -> None:
    stream = (
        sales([("a", 1), ("b", 2)] * 20)
        .process_batch(Doubled(), SALE)
        .rebalance()
        .process_batch(Doubled(), SALE)
        .decouple()
        .process_batch(Doubled(), SALE)
    )
    assert rows(stream) == sorted([("a", 8), ("b", 16)] * 20)


class CountWords(KeyedBatchFunction):
    """Counts records that are their own keys."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_batch(
        self, batch: pa.RecordBatch, ctx: KeyedBatchFunction.Context
    ) -> Iterable[pa.RecordBatch]:
        assert batch.schema.names == ["value"]
        index = ctx.keys.index.to_numpy()
        assert [ctx.keys.values()[i] for i in index] == batch.column("value").to_pylist()
        counts = self.seen.get_many(ctx.keys).fill_null(0).to_numpy()
        counts = counts + np.bincount(index, minlength=len(ctx.keys))
        self.seen.put_many(ctx.keys, counts)
        yield pa.RecordBatch.from_arrays(
            [pa.array(ctx.keys.values()), pa.array(counts)], ["f0", "f1"]
        )


@pytest.mark.parametrize("mode", ["streaming", "batch"])
@pytest.mark.parametrize("words", ["text", "numbers", "odd texts"])
def test_records_that_are_their_own_keys_are_one_column(mode: str, words: str) -> None:
    env = environment(2, penstock__micro_batch__max_records="9")
    if mode == "batch":
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    values: list[Any] = [0, 1, 2, 3] * 8
    type_info = Types.LONG()
    if words != "numbers":
        values = [f"w{v}" + ("\0" if words == "odd texts" else "") for v in values]
        type_info = Types.STRING()
    stream = env.from_collection(values, type_info).key_by(ColumnKey(), type_info)
    pair = Types.TUPLE([type_info, Types.LONG()])
    counts: dict[Any, int] = {}
    for word, count in collected(stream.process_batch(CountWords(), pair)):
        counts[word] = max(count, counts.get(word, 0))
    assert counts == dict.fromkeys(values, 8)


class LastThree(KeyedBatchFunction):
    """Keeps a list per key, going through the keys."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_list_state(ListStateDescriptor("last", Types.LONG()))

    def process_batch(
        self, batch: pa.RecordBatch, ctx: KeyedBatchFunction.Context
    ) -> pa.RecordBatch:
        index, amounts = ctx.keys.index.to_numpy(), batch.column("amount").to_numpy()
        shops, sums = [], []
        for place, shop in enumerate(ctx.keys.values()):
            ctx.use_key(place)
            kept = [*self.last.get(), *amounts[index == place].tolist()][-3:]
            self.last.update(kept)
            shops.append(shop)
            sums.append(sum(kept))
        return pa.RecordBatch.from_arrays([pa.array(shops), pa.array(sums)], ["shop", "amount"])


def test_other_states_are_reached_key_by_key_and_one_batch_may_be_returned() -> None:
    stream = sales([("a", n) for n in range(20)] + [("b", 1)]).key_by(lambda r: r["shop"])
    found = rows(stream.process_batch(LastThree(), SALE))
    assert ("a", 17 + 18 + 19) in found
    assert ("b", 1) in found


class Expiring(CountWords):
    """The same, with a time-to-live."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("seen", Types.LONG())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        self.seen = runtime_context.get_state(descriptor)


def test_values_that_expire_can_be_read_and_written_by_the_batch() -> None:
    env = environment(1, penstock__micro_batch__max_records="3")
    stream = env.from_collection(["a", "b", "a"] * 4, Types.STRING()).key_by(ColumnKey())
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    assert max(collected(stream.process_batch(Expiring(), pair))) == ("b", 4)


class Gives(BatchFunction):
    """Yields what it was made with."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def process_batch(self, batch: pa.RecordBatch, ctx: Any) -> Any:
        return self.given


WRONG: dict[str, tuple[Any, str]] = {
    "names": (
        [pa.record_batch({"shop": ["a"], "sum": [1]})],
        "shop: string, sum: int64; its output_type has shop: string, amount: int64",
    ),
    "types": (
        [pa.record_batch({"shop": ["a"], "amount": [1.0]})],
        "amount: double; its output_type has shop: string, amount: int64",
    ),
    "no-batch": ([("a", 1)], r"must yield record batches; it yielded \('a', 1\)"),
    "nothing-iterable": (5, "must return an iterable or None; it returned 5"),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_error_for_a_wrong_batch_names_both_schemas(what: str) -> None:
    given, sentence = WRONG[what]
    with pytest.raises(UserFunctionError, match=sentence) as raised:
        collected(sales([("a", 1)]).process_batch(Gives(given), SALE).name("wrong"))
    assert "step 'wrong' failed in process_batch() with 1 records" in str(raised.value)


def test_nulls_are_for_the_fields_of_rows_only() -> None:
    nulls = pa.record_batch({"value": pa.array([None], pa.int64())})
    with pytest.raises(UserFunctionError, match="column value has nulls"):
        collected(sales([("a", 1)]).process_batch(Gives([nulls]), Types.LONG()))
    row = pa.record_batch({"shop": pa.array([None], pa.string()), "amount": pa.array([1])})
    assert rows(sales([("a", 1)]).process_batch(Gives([row]), SALE)) == [(None, 1)]


def test_none_an_empty_batch_and_a_dictionary_are_fine() -> None:
    assert rows(sales([("a", 1)]).process_batch(Gives(None), SALE)) == []
    empty = pa.record_batch({"shop": pa.array([], pa.string()), "amount": pa.array([], pa.int64())})
    assert rows(sales([("a", 1)]).process_batch(Gives([empty]), SALE)) == []
    coded = pa.record_batch({"shop": pa.array(["x"]).dictionary_encode(), "amount": [1]})
    assert rows(sales([("a", 1)]).process_batch(Gives([coded]), SALE)) == [("x", 1)]


def test_a_type_without_columns_is_refused_when_the_program_is_built() -> None:
    stream = sales([("a", 1)])
    with pytest.raises(InvalidJobError, match="needs its output to be columns"):
        stream.process_batch(Doubled(), Types.LIST(Types.LONG()))
    with pytest.raises(InvalidJobError, match="needs its input to be columns"):
        stream.map(lambda row: row).process_batch(Doubled(), SALE)
    with pytest.raises(InvalidJobError, match="keyed stream needs a KeyedBatchFunction"):
        stream.key_by(lambda r: 1).process_batch(Doubled(), SALE)
    with pytest.raises(InvalidJobError, match="without keys needs a BatchFunction"):
        stream.process_batch(BatchTotals(), TOTAL)


def test_a_record_that_does_not_fit_is_named() -> None:
    stream = sales([("a", 1)]).map(lambda row: Row("a", "one"), SALE)
    with pytest.raises(StepError, match=r"one"):
        collected(stream.process_batch(Doubled(), SALE))


class Puts(KeyedBatchFunction):
    """Puts what it was made with into a state."""

    def __init__(self, descriptor: ValueStateDescriptor, values: Any) -> None:
        self.descriptor = descriptor
        self.values = values

    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(self.descriptor)

    def process_batch(self, batch: pa.RecordBatch, ctx: KeyedBatchFunction.Context) -> Any:
        self.state.put_many(ctx.keys, self.values)


@pytest.mark.parametrize(
    ("type_info", "values", "sentence"),
    [
        (Types.LONG(), [1, 2], "a value for each of the 1 keys of the batch; it got 2"),
        (Types.LONG(), ["x"], "not of LONG"),
        (Types.BYTE(), pa.array([300]), "not of BYTE"),
        (Types.LIST(Types.LONG()), [[1]], r"LIST\(LONG\), which has no Arrow column"),
    ],
    ids=["count", "type", "range", "no-column"],
)
def test_values_that_a_state_cannot_store_are_refused(
    type_info: Any, values: Any, sentence: str
) -> None:
    function = Puts(ValueStateDescriptor("held", type_info), values)
    stream = sales([("a", 1)]).key_by(lambda r: r["shop"]).process_batch(function, SALE)
    with pytest.raises(StepError, match=sentence):
        collected(stream.name("puts"))


def test_null_removes_a_value() -> None:
    function = Puts(ValueStateDescriptor("held", Types.LONG()), [None])
    stream = sales([("a", 1)] * 20, 1).key_by(lambda r: r["shop"])
    assert collected(stream.process_batch(function, SALE)) == []


class Stamps(TimestampAssigner):
    """Takes the amount as event time."""

    def extract_timestamp(self, value: Row, record_timestamp: int) -> int:
        return int(value["amount"])


class Times(ProcessFunction[Any, Any]):
    """Shows the time of each record."""

    def process_element(self, value: Row, ctx: Any) -> Iterator[tuple[str, int]]:
        yield value["shop"], ctx.timestamp()


class SameTimes(KeyedBatchFunction):
    """Hands rows on as they are, or all of a kind under other times."""

    def __init__(self, shop: str | None = None) -> None:
        self.shop = shop

    def process_batch(self, batch: pa.RecordBatch, ctx: KeyedBatchFunction.Context) -> Any:
        assert ctx.timestamps == batch.column("amount")
        if self.shop is None:
            yield batch
            return
        wanted = pc.equal(batch.column("shop"), self.shop)
        kept = batch.filter(wanted)
        yield kept, pc.add(ctx.timestamps.filter(wanted), 1000)


class Dropping(BatchFunction):
    """Drops rows and does not say which."""

    def process_batch(self, batch: pa.RecordBatch, ctx: BatchFunction.Context) -> Any:
        assert ctx.timestamps is not None
        yield batch.slice(0, 1)


def timed(records: list[tuple[str, int]]) -> DataStream:
    monotonous = WatermarkStrategy.for_monotonous_timestamps()
    return sales(records).assign_timestamps_and_watermarks(
        monotonous.with_timestamp_assigner(Stamps())
    )


TIMED = [("a", 1), ("b", 2), ("a", 3), ("b", 4)] * 3
TIMES = Types.TUPLE([Types.STRING(), Types.LONG()])


def test_records_keep_their_event_time_through_batches_and_channels() -> None:
    keyed = timed(TIMED).key_by(ColumnKey("shop"), Types.STRING())
    shown = keyed.process_batch(SameTimes(), SALE).rebalance().process(Times(), TIMES)
    assert sorted(collected(shown)) == sorted(TIMED)


def test_a_function_may_set_the_timestamps_of_its_records() -> None:
    keyed = timed(TIMED).key_by(lambda r: r["shop"], Types.STRING())
    shown = keyed.process_batch(SameTimes("a"), SALE).process(Times(), TIMES)
    assert sorted(collected(shown)) == sorted([("a", 1001), ("a", 1003)] * 3)


def test_records_without_timestamps_are_refused_in_event_time() -> None:
    stream = timed(TIMED).process_batch(Dropping(), SALE)
    with pytest.raises(UserFunctionError, match=r"yield \(batch, timestamps\)"):
        collected(stream)


def test_the_program_of_the_page_runs() -> None:
    page = Path(__file__).parents[4] / "docs" / "concepts" / "batches.md"
    (shown,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(shown, names)
    assert ("bakery", 7) in rows(names["build"](environment(2)))
