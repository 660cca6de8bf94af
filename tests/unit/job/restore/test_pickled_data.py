"""Pickled data is loaded only from the job's own directories, unless the user allows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.channel.columns import encoder_for
from penstock.channel.segment import SegmentWriter
from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.journal_entries import CheckpointCompletedEntry, JournalState
from penstock.checkpoint.storage.metadata import (
    ChannelState,
    CheckpointMetadata,
    CommittableState,
    OperatorSnapshot,
    OperatorTime,
    SinkState,
    in_flight_file,
)
from penstock.common import Types
from penstock.connectors.collect_sink import CollectSink
from penstock.connectors.two_phase.sink import TwoPhaseSink
from penstock.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.errors import CorruptStateError, PickledSnapshotError
from penstock.ids import JobKey
from penstock.job.restore.pickled_data import is_in_own_directory, reject_pickled
from penstock.job.restore.snapshot_reader import Snapshot
from penstock.recovery.channel_matching import channel_endpoints
from penstock.state import merge
from penstock.state.operator.states import RedistributionMode, StoredList, encode_lists
from penstock.state.registry.meta_info import StateMetaInfo, registry_key, table_prefix
from penstock.task.messages import GeneratorState
from penstock.types.signature import PICKLED
from tests.local_paths import local
from tests.unit.job.counting import (
    KEYS,
    Program,
    bursts,
    checkpoint,
    counted,
    idle_after,
    launched,
    wait_for_records,
)
from tests.unit.support import environment, plan_of


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


class Total:
    """A value that leaves a trace wherever it is unpickled."""

    def __init__(self, count: int, trace: Path) -> None:
        self.count, self.trace = count, trace

    def __reduce__(self) -> Any:
        return _load, (self.count, self.trace)


def _load(count: int, trace: Path) -> Total:
    if trace.parent.is_dir():
        trace.touch()
    return Total(count, trace)


class CountPickled(KeyedProcessFunction[Any, int, str]):
    """Counts in a state without a declared type."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total"))

    def process_element(self, value: int, ctx: Any) -> Iterable[str]:
        total = self.total.value() or Total(0, self._trace)
        self.total.update(Total(total.count + 1, self._trace))
        yield f"{ctx.get_current_key()} {total.count + 1}"


class PickledProgram(Program):
    """The same output, from pickled state."""

    def count(self, numbers: DataStream) -> None:
        counts = numbers.key_by(lambda n: n % KEYS, Types.LONG())
        trace = self.root.parent / "trace" / "unpickled"
        counted = counts.process(CountPickled(trace), Types.STRING()).uid("count")
        counted.sink_to(self.sink()).uid("files")


def program(tmp_path: Path, name: str, **settings: str) -> PickledProgram:
    (tmp_path / name).mkdir(exist_ok=True)
    return PickledProgram(tmp_path / name, idle_after(50), settings=settings)


def snapshots(tmp_path: Path, **settings: str) -> dict[str, Path]:
    """A savepoint and a checkpoint of a job that was then cancelled, copied elsewhere."""
    first = program(
        tmp_path,
        "first",
        execution__checkpointing__externalized_checkpoint_retention="RETAIN_ON_CANCELLATION",
        **settings,
    )
    job = first.launch()
    wait_for_records(job, 50)
    taken = {"savepoint": Path(job.savepoint(str(tmp_path / "savepoints")).result(20))}
    number = checkpoint(job)
    job.cancel()
    assert job.wait_for_end(20)
    (directory,) = (tmp_path / "first" / "checkpoints").iterdir()
    taken["checkpoint"] = max(directory.glob("chk-*"), key=lambda path: int(path.name[4:]))
    assert int(taken["checkpoint"].name[4:]) >= number
    return taken


@pytest.mark.parametrize(
    ("kind", "backend"),
    [("savepoint", "hashmap"), ("checkpoint", "hashmap"), ("checkpoint", "rocksdb")],
)
def test_pickled_state_from_elsewhere_is_rejected_before_it_is_loaded(
    tmp_path: Path, kind: str, backend: str
) -> None:
    path = snapshots(tmp_path, state__backend__type=backend)[kind]
    trace = tmp_path / "trace" / "unpickled"
    trace.parent.mkdir()
    second = program(
        tmp_path,
        "second",
        execution__state_recovery__path=str(path),
        state__backend__type=backend,
    )
    second.script = bursts(100)
    with pytest.raises(PickledSnapshotError) as rejected:
        second.run()
    assert rejected.value.path == str(path)
    assert "state 'total' of 'KEYED PROCESS" in str(rejected.value)
    assert "penstock.restore.allow-pickle=true" in str(rejected.value)
    assert not trace.exists()
    second.settings["penstock__restore__allow_pickle"] = "true"
    second.run()
    assert sorted(second.lines()) == sorted(counted(100)[50:])
    assert trace.exists()


def test_pickled_state_is_restored_from_the_jobs_own_directories(tmp_path: Path) -> None:
    taken = snapshots(tmp_path)
    directory = {"execution__checkpointing__savepoint_dir": str(tmp_path / "savepoints")}
    for name, path, settings in (
        ("first", taken["savepoint"], {}),
        ("first", taken["checkpoint"], {}),
        ("second", taken["savepoint"], directory),
    ):
        again = program(tmp_path, name, execution__state_recovery__path=str(path), **settings)
        again.script = bursts(80)
        again.run()
        assert set(again.lines()) >= set(counted(80)[50:])


# -- which directories are the job's own ----------------------------------------------------------


def at(path: Path, crc: int = 7) -> Snapshot:
    path.mkdir(parents=True, exist_ok=True)
    metadata = CheckpointMetadata("count", "count", "a1", 3, "savepoint", 0.0, 0.0, "", [])
    return Snapshot(metadata, path, is_own=False, crc=crc)


def test_own_snapshots_are_in_own_directories_or_known_to_the_journal(tmp_path: Path) -> None:
    job, savepoints = JobDir(tmp_path / "checkpoints", JobKey("count")), tmp_path / "savepoints"
    made = CheckpointCompletedEntry(3, "a1", str(tmp_path / "moved" / "sp"), True, 7, 0.0)
    state = JournalState(completed=(made,))

    def is_own(snapshot: Snapshot, directory: Path | None = savepoints) -> bool:
        return is_in_own_directory(snapshot, job, directory, state)

    assert is_own(at(local(job.path / "chk-3")))
    assert is_own(at(savepoints / "savepoint-1"))
    assert not is_own(at(savepoints / "savepoint-1"), None)
    assert not is_own(at(tmp_path / "checkpoints" / "other" / "chk-3"))
    assert is_own(at(tmp_path / "moved" / "sp"))
    assert not is_own(at(tmp_path / "moved" / "sp", crc=8))
    assert not is_own(at(tmp_path / "moved" / "other"))
    (savepoints / "link").symlink_to(tmp_path / "moved" / "other")
    assert not is_own(at(savepoints / "link"))
    assert not is_own(at(savepoints / ".." / "moved" / "other"))


# -- what else is pickled -------------------------------------------------------------------------


def operator(**fields: Any) -> OperatorSnapshot:
    return OperatorSnapshot("step", "step", "map", 1, 128, 0, **fields)


def sink_state() -> SinkState:
    return SinkState([CommittableState(1, b"x")], [])


def listed(type_: str) -> bytes:
    return encode_lists({"buffer": StoredList(RedistributionMode.SPLIT, type_, [b"x"])})


ANYTHING = TwoPhaseSink(open=print, write=print, prepare=print, commit=print)


@pytest.mark.parametrize(
    ("snapshot", "sink", "declared", "found"),
    [
        (operator(operator_state=[listed(PICKLED)]), None, True, "operator state 'buffer'"),
        (operator(operator_state=[listed("LONG")]), None, True, None),
        (
            operator(time=OperatorTime(generators={"0": GeneratorState("G", b"x")})),
            None,
            True,
            "the watermark generator",
        ),
        (operator(sink=sink_state()), CollectSink(print), False, "pending output"),
        (operator(sink=sink_state()), CollectSink(print), True, None),
        (operator(sink=sink_state()), ANYTHING, True, "pending output"),
        (operator(sink=SinkState([], [])), ANYTHING, True, None),
    ],
)
def test_what_a_snapshot_would_make_the_job_unpickle_is_found(
    tmp_path: Path, snapshot: OperatorSnapshot, sink: Any, declared: bool, found: str | None
) -> None:
    env = environment()
    numbers = env.from_collection([1, 2], Types.LONG() if declared else None)
    if sink is None:
        numbers.map(lambda n: n, Types.LONG()).uid("step").print()
    else:
        numbers.sink_to(sink).uid("step")
    metadata = CheckpointMetadata("j", "j", "a1", 1, "savepoint", 0.0, 0.0, "", [snapshot])
    read = Snapshot(metadata, tmp_path, is_own=False)
    if found is None:
        reject_pickled(plan_of(env), read)
        return
    with pytest.raises(PickledSnapshotError, match=f"{found} of 'step'"):
        reject_pickled(plan_of(env), read)


@pytest.mark.parametrize(("records", "is_pickled"), [([1, 2, 3], False), ([{}, object], True)])
def test_in_flight_records_without_a_type_are_rejected_only_if_they_are_pickled(
    tmp_path: Path, records: list[Any], is_pickled: bool
) -> None:
    env = environment()
    env.from_collection([1, 2]).key_by(lambda n: n).process(CountPickled(tmp_path)).print()
    plan = plan_of(env)
    (end,) = channel_endpoints(plan).values()
    state = ChannelState(end.producer.uid, 0, 0, "x", 1, PICKLED, "a1", 0, 1, [])
    writer = SegmentWriter(tmp_path / "segment.arrow", 1)
    writer.write(0, encoder_for(None)(records))
    segment = writer.finish()
    assert segment is not None
    file = tmp_path / in_flight_file(end.consumer.uid, state, segment)
    file.parent.mkdir(parents=True)
    (tmp_path / "segment.arrow").rename(file)
    state.entries.append([segment])
    metadata = CheckpointMetadata("j", "j", "a1", 1, "checkpoint", 0.0, 0.0, "", [])
    read = Snapshot(metadata, tmp_path, is_own=False, in_flight={end.channel.id: state})
    if not is_pickled:
        reject_pickled(plan, read)
        return
    with pytest.raises(PickledSnapshotError, match="in-flight data of 'KEYED PROCESS'"):
        reject_pickled(plan, read)


def registered(*tables: tuple[int, str]) -> list[tuple[bytes, bytes]]:
    infos = {f"s{table}": StateMetaInfo(table, "value state", type_) for table, type_ in tables}
    return [(registry_key(name), info.encode()) for name, info in sorted(infos.items())]


def test_entries_of_declared_types_are_passed_on() -> None:
    entries = [*registered((1, "LONG"), (2, PICKLED)), (table_prefix(1) + b"key", b"\x01")]
    assert list(merge.reject_pickled(iter(entries), "sp", "step")) == entries


def test_entries_of_a_table_without_a_registered_state_are_rejected() -> None:
    entries = [*registered((1, "LONG")), (table_prefix(2) + b"key", b"\x80\x05N.")]
    with pytest.raises(CorruptStateError, match="0002"):
        list(merge.reject_pickled(iter(entries), "sp", "step"))
