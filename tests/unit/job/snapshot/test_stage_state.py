"""The state of a stage at a checkpoint."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.discarding_sink import DiscardingSink
from penstock.connectors.indexed_sources import NumberSequenceSource
from penstock.datastream import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.ids import StageId
from penstock.job.snapshot.compaction import is_worth_compacting
from penstock.job.state_jobs import Compacted, CompactionWork, VerifyWork
from penstock.job.submitter import R, W
from penstock.state.backends.changelog import ChangelogBackend
from penstock.state.backends.refs import FileRef, StateLocation, StateRef
from penstock.task.messages import Instruction
from tests.unit.support import WatchedSubmitter, environment


class Last(KeyedProcessFunction[Any, int, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Any:
        self._last.update(value)
        yield value


class Uploads(WatchedSubmitter):
    """Slows down the keyed stage, so that barriers wait behind data; records uploads."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[CompactionWork, Compacted]] = []

    def before(self, instruction: Instruction) -> None:
        if instruction.stage:
            time.sleep(0.01)

    def run_per_subtask(
        self, stage: StageId, purpose: str, function: Callable[[W, int], R], work: list[W]
    ) -> list[R]:
        made = super().run_per_subtask(stage, purpose, function, work)
        if purpose == "upload":
            self.made += zip(work, made, strict=True)  # type: ignore[arg-type]
        return made


def test_a_checkpoint_uploads_the_local_snapshot_of_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rebuild(*_: Any) -> StateRef:
        message = "the whole state was made anew for a checkpoint"
        raise AssertionError(message)

    monkeypatch.setattr(
        "penstock.state.backends.rocksdb.backend.RocksDbBackend._upload_rebuilt", rebuild
    )
    uploads = Uploads()
    env = uploads.watch(
        environment(
            2,
            state__backend__type="rocksdb",
            execution__checkpointing__dir=str(tmp_path),
            execution__checkpointing__incremental="true",
            penstock__checkpoint__records="20",
            penstock__micro_batch__max_records="10",
            penstock__micro_batch__initial_records="10",
        )
    )
    source = NumberSequenceSource(0, 99)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    numbers.key_by(lambda n: n % 50).process(Last()).sink_to(DiscardingSink())
    env.execute("numbers")
    sent = [(work, made.ref) for work, made in uploads.made if made.ref is not None]
    assert sent
    for work, ref in sent:
        assert work.snapshot is not None
        assert ref.version == work.ref.version == work.snapshot.version
        assert not Path(work.snapshot.path).exists()


class Damaging(WatchedSubmitter):
    """Damages the first base that is written, before its task reads it back."""

    def __init__(self, purpose: str, patched: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._purpose = purpose
        self._damages = threading.local()
        self.damaged: Path | None = None
        sync = ChangelogBackend.sync

        def damaging(
            backend: ChangelogBackend,
            location: StateLocation,
            ref: StateRef,
            known: Collection[str] = (),
        ) -> None:
            sync(backend, location, ref, known)
            new = [file for file in ref.files if file.name not in known]
            if getattr(self._damages, "now", False) and self.damaged is None and new:
                self.damaged = location.shared_dir / new[0].name
                data = bytearray(self.damaged.read_bytes())
                data[len(data) // 2] ^= 1
                self.damaged.write_bytes(data)
                self.content = bytes(data)

        patched.setattr(ChangelogBackend, "sync", damaging)

    def run_per_subtask(
        self, stage: StageId, purpose: str, function: Callable[[W, int], R], work: list[W]
    ) -> list[R]:
        self._damages.now = purpose == self._purpose
        try:
            return super().run_per_subtask(stage, purpose, function, work)
        finally:
            self._damages.now = False

    def used(self) -> set[str]:
        """Return all state files that instructions have named."""
        refs = [w.state for i in self.instructions for w in i.work if w.state is not None]
        return {file.name for ref in refs for file in ref.files}


@pytest.mark.parametrize(
    ("backend", "purpose"), [("rocksdb", "upload"), ("rocksdb", "compact"), ("hashmap", "compact")]
)
def test_a_base_that_is_damaged_before_it_is_verified_is_never_used_and_is_written_again(
    tmp_path: Path,
    backend: str,
    purpose: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    damaging = Damaging(purpose, monkeypatch)
    env = damaging.watch(
        environment(
            state__backend__type=backend,
            execution__checkpointing__dir=str(tmp_path),
            execution__checkpointing__externalized_checkpoint_retention="RETAIN_ON_CANCELLATION",
            penstock__checkpoint__records="20" if purpose == "upload" else "100000",
            penstock__micro_batch__max_records="10",
            penstock__micro_batch__initial_records="10",
            penstock__state__compact_after_deltas="3",
        )
    )
    source = NumberSequenceSource(0, 199)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    numbers.key_by(lambda n: n % 50).process(Last()).sink_to(DiscardingSink())
    env.execute("numbers")
    assert damaging.damaged is not None
    path = damaging.damaged
    assert not path.exists() or path.read_bytes() != damaging.content
    assert any(name.endswith((".sst", ".base")) for name in damaging.used())
    assert "because they were damaged" in caplog.text
    assert "failed" not in caplog.text


class Verifying(WatchedSubmitter):
    """Damages the first file that tasks are to verify, and counts what they verify."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def run_per_subtask(
        self, stage: StageId, purpose: str, function: Callable[[W, int], R], work: list[W]
    ) -> list[R]:
        for one in work:
            if isinstance(one, VerifyWork):
                new = [file for file in one.ref.files if file.name not in one.known]
                if new and not self.bytes:
                    with (one.place.shared_dir / new[0].name).open("r+b") as file:
                        file.truncate(new[0].size - 1)
                self.bytes += one.new_bytes
        return super().run_per_subtask(stage, purpose, function, work)


@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_large_changes_are_read_back_by_tasks_and_a_damaged_one_fails_the_checkpoint(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("penstock.job.snapshot.stage_state._VERIFIED_BY_DRIVER", limit)
    verifying = Verifying()
    env = verifying.watch(
        environment(
            state__backend__type="hashmap",
            execution__checkpointing__dir=str(tmp_path),
            penstock__checkpoint__records="50",
            penstock__micro_batch__max_records="10",
            penstock__micro_batch__initial_records="10",
            penstock__state__compact_after_deltas="1000",
        )
    )
    source = NumberSequenceSource(0, 199)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    numbers.key_by(lambda n: n % 50).process(Last()).sink_to(DiscardingSink())
    env.execute("numbers")
    assert (verifying.bytes > 0) is (limit == 0)
    assert ("bytes, not" in caplog.text) is (limit == 0)


def ref_of(base: int, *deltas: int) -> StateRef:
    files = tuple(FileRef(str(i), i, size, 0) for i, size in enumerate(deltas, start=1))
    return StateRef(len(deltas), FileRef("base", 0, base, 0), files)


@pytest.mark.parametrize(
    ("ref", "is_worth"),
    [
        (StateRef(0), False),
        (ref_of(0, 1, 1, 1), True),
        (ref_of(0, 1, 1), False),
        (ref_of(100, 10, 10, 10), False),
        (ref_of(100, 20, 20, 10), True),
        (ref_of(10_000, *[1] * 23), False),
        (ref_of(10_000, *[1] * 24), True),
    ],
)
def test_deltas_are_compacted_when_there_are_many_and_they_reach_half_the_base(
    ref: StateRef, is_worth: bool
) -> None:
    assert is_worth_compacting(ref, 3) is is_worth
