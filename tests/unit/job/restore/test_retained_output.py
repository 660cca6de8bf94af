"""Sinks keep the output that retained checkpoints need, and no more."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from penstock.checkpoint.coordinator.commit_executor import DiscardedOutput
from penstock.checkpoint.storage.job_dir import METADATA
from penstock.checkpoint.storage.metadata import CommittableState, OperatorSnapshot, SinkState
from penstock.checkpoint.storage.metadata_serializer import decode_metadata
from penstock.common import Encoder
from penstock.connectors.files.committables import UnrolledPieces, decode_entry
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.job.launched_job import LaunchedJob
from penstock.job.restore.retained_output import Output, RetainedOutput
from penstock.savepoint.directory import dispose
from penstock.testing import Burst, Idle, ManualClock, Pause
from tests.local_paths import local
from tests.unit.job.counting import (
    Program,
    checkpoint,
    counted,
    die,
    flip_a_byte,
    launched,
    wait_for_lines,
    wait_for_records,
)
from tests.unit.support import eventually


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


BURST = 6
RETAINED = 3


@dataclass
class Growing(Program):
    """Writes parts of a few micro-batches each; each advance of the clock brings a burst."""

    bursts: int = 8
    ends: bool = False

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.interval = "1 h"
        self.parallelism = 1
        self.settings = {"execution__checkpointing__num_retained": str(RETAINED), **self.settings}
        steps = [Burst(range(n * BURST, (n + 1) * BURST)) for n in range(self.bursts)]
        self.script = [step for burst in steps for step in (Pause(10), burst)]
        self.script += [] if self.ends else [Idle()]

    def sink(self) -> FileSink:
        rows = FileSink.for_row_format(self.root / self.output, Encoder.simple_string_encoder())
        # Four bytes a record: a part is full with the third burst.
        policy = RollingPolicy.default_rolling_policy(part_size=12 * BURST)
        return rows.with_rolling_policy(policy).build()

    def take(self, job: LaunchedJob, bursts: int) -> None:
        """Take a checkpoint after each of the first bursts since the launch."""
        for burst in range(bursts):
            self.advance()
            wait_for_records(job, (burst + 1) * BURST)
            checkpoint(job)

    def advance(self) -> None:
        assert self.clock is not None
        self.clock.advance(10)

    def run_to_completion(self, job: LaunchedJob) -> None:
        while not job.wait_for_end(0.02):
            self.advance()
        job.raise_failure()

    def retained(self) -> list[Path]:
        numbers = [c.checkpoint for c in self.journal().restorable]
        return [local(self.dir.checkpoint_dir(number)) for number in numbers]

    def in_checkpoints(self) -> set[str]:
        """The parts in the state of retained checkpoints."""
        metadata = [decode_metadata((p / METADATA).read_bytes(), str(p)) for p in self.retained()]
        sinks = [o.sink for m in metadata for o in m.operators if o.sink is not None]
        kept = [decode_entry(data) for sink in sinks for data in sink.state]
        unrolled = [entry for entry in kept if isinstance(entry, UnrolledPieces)]
        return {piece.path for entry in unrolled for piece in entry.pieces}

    def pieces(self) -> set[str]:
        return set(map(str, (self.root / self.output).rglob("*.piece")))


def test_the_oldest_retained_checkpoint_can_be_restored(tmp_path: Path) -> None:
    program = Growing(tmp_path)
    job = program.launch()
    program.take(job, 7)
    wait_for_lines(program, 3 * BURST)
    die(job)
    oldest = program.retained()[0]
    settings = {"execution__state_recovery__path": str(oldest)}
    again = replace(program, settings=settings, ends=True)
    again.run_to_completion(again.launch())
    assert set(program.lines()) >= set(counted(8 * BURST))


def test_a_fallback_finds_parts_that_the_damaged_checkpoint_had_committed(
    tmp_path: Path,
) -> None:
    program = Growing(tmp_path)
    job = program.launch()
    program.take(job, 3)
    wait_for_lines(program, 3 * BURST)
    die(job)
    flip_a_byte(program.retained()[-1] / METADATA)
    settings = {"penstock__recovery__accept_duplicates": "true"}
    again = replace(program, settings=settings, ends=True)
    again.run_to_completion(again.launch())
    verdict = again.verdict(8 * BURST)
    assert verdict.is_at_least_once, verdict
    assert len(verdict.duplicated) == 3 * BURST


def test_kept_parts_are_those_of_retained_checkpoints(tmp_path: Path) -> None:
    program = Growing(tmp_path)
    job = program.launch()
    program.take(job, 8)
    assert program.in_checkpoints()
    eventually(lambda: program.pieces() == program.in_checkpoints())


def test_parts_of_an_earlier_attempt_are_removed_with_its_checkpoints(tmp_path: Path) -> None:
    program = Growing(tmp_path, bursts=12)
    job = program.launch()
    program.take(job, 5)
    die(job)
    before = program.pieces()
    assert before == program.in_checkpoints()
    again = replace(program)
    again.take(again.launch(), RETAINED + 1)
    assert not program.in_checkpoints() & before
    eventually(lambda: program.pieces() == program.in_checkpoints())


def test_a_finished_job_leaves_no_parts_of_its_deleted_checkpoints(tmp_path: Path) -> None:
    program = Growing(tmp_path, ends=True)
    job = program.launch()
    program.take(job, 7)
    assert program.in_checkpoints()
    program.run_to_completion(job)
    assert program.verdict(8 * BURST).is_exactly_once, program.verdict(8 * BURST)
    assert not list((tmp_path / "out").glob(".staging-*"))


@pytest.mark.parametrize("checkpoints", [0, 1, 5])
def test_a_disposed_savepoint_takes_along_its_own_output_only(
    tmp_path: Path, checkpoints: int
) -> None:
    program = Growing(tmp_path)
    job = program.launch()
    program.advance()
    wait_for_records(job, BURST)
    savepoint = Path(job.savepoint(str(tmp_path / "savepoints")).result(20))
    dispose(savepoint)
    for burst in range(checkpoints):
        program.advance()
        wait_for_records(job, (burst + 2) * BURST)
        checkpoint(job)
    if checkpoints > RETAINED:
        eventually(lambda: program.pieces() == program.in_checkpoints())
    die(job)
    again = replace(program, ends=True)
    again.run_to_completion(again.launch())
    assert again.verdict(8 * BURST).is_exactly_once, again.verdict(8 * BURST)


# -- what may be removed ------------------------------------------------------------------------


def snapshot(state: Sequence[bytes] = (), committables: Sequence[bytes] = ()) -> OperatorSnapshot:
    sink = SinkState([CommittableState(1, data) for data in committables], list(state))
    return OperatorSnapshot("files", "files", "sink", 1, 128, 1, sink=sink)


class Earlier:
    """Snapshots from before the attempt, by id."""

    def __init__(self, snapshots: dict[int, list[bytes]] | None) -> None:
        self.snapshots = snapshots

    def read(self, without: Collection[int]) -> Output | None:
        if self.snapshots is None:
            return None
        ids = [n for n in self.snapshots if n not in without]
        return {"files": [data for n in ids for data in self.snapshots[n]]}


def test_discarded_output_is_returned_with_all_retained_output() -> None:
    output = RetainedOutput(Earlier({}).read)
    output.keep(1, [snapshot([b"a"], [b"x"])])
    output.keep(2, [snapshot([b"a", b"b"])])
    output.keep(3, [snapshot([], [b"y"])])
    assert output.forget([]) == {}
    assert output.forget([1]) == {"files": DiscardedOutput([b"a", b"x"], [b"a", b"b", b"y"])}
    assert output.forget([2]) == {"files": DiscardedOutput([b"a", b"b"], [b"y"])}


def test_earlier_snapshots_are_referenced_until_they_are_discarded() -> None:
    earlier = Earlier({1: [b"a"], 2: [b"a", b"b"]})
    output = RetainedOutput(earlier.read)
    output.keep(3, [snapshot([b"b"])])
    earlier.snapshots = {2: [b"a", b"b"], 3: [b"b"]}
    assert output.forget([1]) == {}
    earlier.snapshots = {3: [b"b"]}
    assert output.forget([2]) == {"files": DiscardedOutput([b"a", b"b"], [b"b"])}
    assert output.forget([3]) == {"files": DiscardedOutput([b"b"], [])}


def test_nothing_is_removed_while_a_snapshot_cannot_be_read() -> None:
    output = RetainedOutput(Earlier(None).read)
    output.keep(1, [snapshot([b"a"])])
    assert output.forget([1]) == {}


def test_earlier_snapshots_that_become_unreadable_keep_their_output() -> None:
    earlier = Earlier({1: [b"a"]})
    output = RetainedOutput(earlier.read)
    output.keep(2, [snapshot([b"b"])])
    earlier.snapshots = None
    assert output.forget([1]) == {}
    assert output.forget([2]) == {"files": DiscardedOutput([b"b"], [b"a"])}
