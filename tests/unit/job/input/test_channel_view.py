"""Reading the channels of a running job."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.channel.columns import encoder_for
from penstock.channel.log import END_OF_INPUT, Entry, EntryKind, barrier
from penstock.channel.segment import Segment, SegmentWriter
from penstock.common import ChannelInfo, JobClient, Row, Types, WatermarkStrategy
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.connectors import DiscardingSink
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.errors import CorruptSegmentError, UnknownChannelError, UserFunctionError
from penstock.graph.transformation import Exchange
from penstock.ids import CheckpointId
from penstock.job.input.waiting_rows import waiting_rows
from penstock.task.messages import Instruction
from tests.unit.support import WatchedSubmitter, environment, eventually

NAMES = ["position", "kind", "checkpoint", "subtask", "key", "value"]


def written(
    directory: Path, name: str, parts: dict[int, list[Any]], type_info: TypeInformation | None
) -> Segment:
    writer = SegmentWriter(directory / name, 2)
    for subtask, records in parts.items():
        writer.write(subtask, encoder_for(type_info)(records))
    segment = writer.finish()
    assert segment is not None
    return segment


def data(*segments: Segment) -> Entry:
    return Entry(EntryKind.DATA, segments)


def values(table: pa.Table) -> list[Any]:
    return [row["value"] for row in table.to_pylist() if row["kind"] == "record"]


# -- tables -------------------------------------------------------------------------------------


def test_every_waiting_record_is_a_row_with_its_position_and_subtask(
    tmp_path: Path,
) -> None:
    type_info = Types.LONG()
    entries = [
        data(
            written(tmp_path, "a", {0: [1, 2], 1: [3]}, type_info),
            written(tmp_path, "b", {1: [4]}, type_info),
        ),
        barrier(CheckpointId(7)),
        data(written(tmp_path, "c", {0: [5]}, type_info)),
        END_OF_INPUT,
    ]
    table = waiting_rows(entries, 10, type_info, tmp_path)
    assert table.schema.names == NAMES
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (10, "record", None, 0, None, 1),
        (10, "record", None, 0, None, 2),
        (10, "record", None, 1, None, 3),
        (10, "record", None, 1, None, 4),
        (11, "barrier", 7, None, None, None),
        (12, "record", None, 0, None, 5),
        (13, "end of input", None, None, None, None),
    ]


def test_an_empty_channel_gives_an_empty_table_with_the_same_columns(tmp_path: Path) -> None:
    table = waiting_rows([], 0, Types.DOUBLE(), tmp_path)
    assert table.schema.names == NAMES
    assert table.schema.field("value").type == pa.float64()
    assert table.num_rows == 0


@pytest.mark.parametrize(
    ("type_info", "records", "arrow", "shown"),
    [
        (Types.STRING(), ["x", "ü"], pa.string(), ["x", "ü"]),
        (Types.BOOLEAN(), [True, False], pa.bool_(), [True, False]),
        (
            Types.TUPLE([Types.STRING(), Types.INT()]),
            [("a", 1)],
            pa.struct([("f0", pa.string()), ("f1", pa.int32())]),
            [{"f0": "a", "f1": 1}],
        ),
        (
            Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.LONG()]),
            [Row("a", 1), Row(None, 2)],
            pa.struct([("name", pa.string()), ("n", pa.int64())]),
            [{"name": "a", "n": 1}, {"name": None, "n": 2}],
        ),
        (Types.LIST(Types.LONG()), [[1, 2]], pa.string(), ["[1, 2]"]),
        (None, [1, "two", (3,)], pa.string(), ["1", "two", "(3,)"]),
        (None, ["half \ud800"], pa.string(), ["half ?"]),
    ],
    ids=str,
)
def test_values_are_typed_if_their_type_is_simple_and_else_text(
    tmp_path: Path,
    type_info: TypeInformation | None,
    records: list[Any],
    arrow: pa.DataType,
    shown: list[Any],
) -> None:
    entry = data(written(tmp_path, "a", {0: records}, type_info))
    table = waiting_rows([entry], 0, type_info, tmp_path)
    assert table.schema.field("value").type == arrow
    assert values(table) == shown


class Shy:
    def __str__(self) -> str:
        raise RuntimeError


def test_a_record_that_cannot_be_shown_hides_no_other(tmp_path: Path) -> None:
    entry = data(written(tmp_path, "a", {0: [Shy(), 1]}, None))
    shown = values(waiting_rows([entry], 0, None, tmp_path))
    assert shown[0].startswith("<tests.unit.job.input.test_channel_view.Shy object")
    assert shown[1] == "1"


@pytest.mark.parametrize("limit", [0, 1, 3, 4, 5, 100])
def test_no_more_rows_are_returned_than_requested(tmp_path: Path, limit: int) -> None:
    entries = [
        data(written(tmp_path, "a", {0: [1, 2], 1: [3]}, Types.LONG())),
        barrier(CheckpointId(1)),
        data(written(tmp_path, "b", {0: [4, 5]}, Types.LONG())),
    ]
    rows = waiting_rows(entries, 0, Types.LONG(), tmp_path).to_pylist()
    assert waiting_rows(entries, 0, Types.LONG(), tmp_path, limit).to_pylist() == rows[:limit]


def test_entries_consumed_meanwhile_are_left_out(tmp_path: Path) -> None:
    consumed = data(
        written(tmp_path, "a", {0: [1]}, Types.LONG()),
        written(tmp_path, "b", {0: [2]}, Types.LONG()),
    )
    there = data(written(tmp_path, "c", {0: [3]}, Types.LONG()))
    (tmp_path / "b").unlink()
    assert values(waiting_rows([consumed, there], 0, Types.LONG(), tmp_path)) == [3]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    entry = data(written(tmp_path, "a", {0: [1]}, Types.LONG()))
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:-1])
    with pytest.raises(CorruptSegmentError, match="it ends before byte"):
        waiting_rows([entry], 0, Types.LONG(), tmp_path)


# -- running jobs -------------------------------------------------------------------------------


class Blocking(WatchedSubmitter):
    """Delays the micro-batches of some stages."""

    def __init__(self, *stages: int) -> None:
        super().__init__()
        self.go = threading.Event()
        self._blocked = stages

    def before(self, instruction: Instruction) -> None:
        if instruction.stage in self._blocked:
            self.go.wait(20)


def ended(client: JobClient) -> bool:
    return client.get_job_execution_result().done()


def end(client: JobClient, submitter: Blocking) -> None:
    client.cancel()
    submitter.go.set()
    eventually(lambda: ended(client))


def rows_of(client: JobClient, channel: str | int, limit: int | None = None) -> list[Any]:
    table = client._job.channel_rows(channel, limit)
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[tuple[JobClient, Blocking]]:
    """A job that counts by key and has not read its keyed channel yet."""
    submitter = Blocking(1)
    env = submitter.watch(
        environment(
            2,
            execution__checkpointing__dir=str(tmp_path / "checkpoints"),
            penstock__micro_batch__max_records="5",
            penstock__channel__max_records="8",
        )
    )
    numbers = env.from_source(
        NumberSequenceSource(1, 60), WatermarkStrategy.no_watermarks(), "numbers"
    ).map(lambda n: (n % 3, n), Types.TUPLE([Types.LONG(), Types.LONG()]))
    keyed = numbers.name("pairs").key_by(lambda pair: pair[0], Types.LONG())
    keyed.reduce(lambda a, b: (a[0], a[1] + b[1])).name("sums").sink_to(DiscardingSink())
    client = env.execute_async("waiting")
    eventually(lambda: any(channel.is_full for channel in client.get_channels()))
    yield client, submitter
    end(client, submitter)


def test_channel_infos_show_what_waits(waiting: tuple[JobClient, Blocking]) -> None:
    client, _ = waiting
    (channel,) = client.get_channels()
    assert isinstance(channel, ChannelInfo)
    assert channel.name == "pairs -> sums"
    assert (channel.producer, channel.consumer, channel.input) == ("pairs", "sums", 1)
    assert channel.exchange == Exchange.HASH.value
    assert (channel.micro_batches, channel.records) == (2, 10)
    assert channel.bytes > 0
    assert (channel.barriers, channel.blocked_at) == ([], None)
    assert (channel.is_full, channel.has_ended) == (True, False)


def test_a_keyed_channel_is_read_with_its_keys(waiting: tuple[JobClient, Blocking]) -> None:
    client, _ = waiting
    rows = rows_of(client, "pairs -> sums")
    assert rows_of(client, 0) == rows
    assert sorted(value["f1"] for *_, value in rows) == list(range(1, 11))
    assert all(key == str(value["f0"]) for *_, key, value in rows)
    assert sorted({position for position, *_ in rows}) == [0, 1]
    by_key = {key: subtask for _, _, _, subtask, key, _ in rows}
    assert {(key, subtask) for _, _, _, subtask, key, _ in rows} == set(by_key.items())
    assert len(rows_of(client, 0, 4)) == 4


def test_reading_channels_does_not_change_a_job(
    waiting: tuple[JobClient, Blocking],
) -> None:
    client, submitter = waiting
    rows_of(client, 0)
    submitter.go.set()
    while not ended(client):
        rows = rows_of(client, 0)
        assert {kind for _, kind, *_ in rows} <= {"record", "end of input"}
        assert all(channel.records <= 10 for channel in client.get_channels())
    client.get_job_execution_result().result()
    assert client.get_channels() == []
    assert rows_of(client, "pairs -> sums") == []


def test_an_unknown_channel_is_rejected_with_the_known_ones(
    waiting: tuple[JobClient, Blocking],
) -> None:
    client, _ = waiting
    for wanted in ("sums -> pairs", 7):
        with pytest.raises(UnknownChannelError, match="it has 'pairs -> sums'"):
            client._job.channel_rows(wanted, None)


def test_a_blocked_channel_shows_its_barrier(tmp_path: Path) -> None:
    submitter = Blocking(1)
    env = submitter.watch(
        environment(1, execution__checkpointing__dir=str(tmp_path / "checkpoints"))
    )
    fast, slow = (
        env.from_source(NumberSequenceSource(1, 3), WatermarkStrategy.no_watermarks(), name)
        for name in ("number", "number")
    )
    fast.union(slow).key_by(lambda n: n).map(lambda n: n).name("one").sink_to(DiscardingSink())
    client = env.execute_async("blocked")
    try:
        client.trigger_savepoint(str(tmp_path / "mine"))
        eventually(lambda: client.get_channels()[0].blocked_at == 1)
        first, second = client.get_channels()
        assert first.name == "Source: number -> one"
        assert second.name == "Source: number -> one #2"
        assert (first.barriers, second.barriers, second.blocked_at) == ([1], [], None)
        assert rows_of(client, first.name)[0][:3] == (2, "barrier", 1)
        submitter.go.set()
        eventually(lambda: ended(client))
    finally:
        end(client, submitter)


def test_records_that_are_their_own_keys_are_shown_as_both() -> None:
    submitter = Blocking(1)
    env = submitter.watch(environment(1))
    words = env.from_collection(["a", "b", "a"], Types.STRING()).name("words")
    words.key_by(lambda w: w, Types.STRING()).map(len).name("len").sink_to(DiscardingSink())
    client = env.execute_async("words")
    try:
        eventually(lambda: any(c.has_ended for c in client.get_channels()))
        rows = rows_of(client, "words -> len")
        assert [(key, value) for _, _, _, _, key, value in rows] == [
            ("a", "a"),
            ("b", "b"),
            ("a", "a"),
            (None, None),
        ]
    finally:
        end(client, submitter)


def test_an_ended_job_has_no_channel_contents_but_knows_channel_names() -> None:
    submitter = Blocking()
    env = submitter.watch(environment(1))

    def fail(_: int) -> int:
        raise ValueError

    env.from_collection([1], Types.LONG()).name("one").rebalance().map(fail).name("fail").sink_to(
        DiscardingSink()
    )
    client = env.execute_async("failed")
    with pytest.raises(UserFunctionError):
        client.get_job_execution_result().result()
    assert client.get_channels() == []
    assert rows_of(client, "one -> fail") == []
