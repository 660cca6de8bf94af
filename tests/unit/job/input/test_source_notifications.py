"""Checkpoint notifications of sources, and the state they store in checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.contracts.source import EnumeratorContext, SourceEnumerator
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.testing import Burst, Idle, ScriptedSource
from tests.unit.job.counting import (
    Program,
    bursts,
    checkpoint,
    die,
    idle_after,
    launched,
    wait_for_records,
)
from tests.unit.support import eventually

ONE = {"parallelism": 1, "interval": "10 h"}


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


@dataclass
class Notifications:
    """The notifications of the enumerators of one test, in order."""

    completed: list[dict[str, int]] = field(default_factory=list)
    restored: list[bytes] = field(default_factory=list)
    closed_after: list[int] = field(default_factory=list)
    contexts: list[EnumeratorContext] = field(default_factory=list)


class NotifiedSource(ScriptedSource):
    """A scripted source that records its notifications."""

    received: ClassVar[Notifications]

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        inner, received = super().enumerator(context), self.received
        received.contexts.append(context)

        class Telling(type(inner)):  # type: ignore[misc]
            def snapshot_state(self) -> bytes:
                return f"at {self.positions()['0']}".encode()

            def restore_state(self, memory: bytes) -> None:
                received.restored.append(memory)

            def notify_checkpoint_complete(self, positions: Mapping[str, int]) -> None:
                received.completed.append(dict(positions))

            def close(self) -> None:
                received.closed_after.append(len(received.completed))
                super().close()

        inner.__class__ = Telling
        return inner


@dataclass
class Told(Program):
    """Counts the records of a recording source."""

    received: Notifications = field(default_factory=Notifications)

    def build(self) -> StreamExecutionEnvironment:
        env = self.environment()
        NotifiedSource.received = self.received
        source: Any = NotifiedSource(self.script, Types.LONG(), self.clock)
        self.count(env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers"))
        return env


def test_a_source_is_notified_when_a_checkpoint_completes(tmp_path: Path) -> None:
    program = Told(tmp_path, [Burst(range(20)), Idle()], **ONE)  # type: ignore[arg-type]
    job = program.launch()
    wait_for_records(job, 20)
    assert program.received.completed == []
    checkpoint(job)
    eventually(lambda: program.received.completed == [{"0": 20}])


def test_a_source_is_notified_of_the_last_checkpoint_before_it_is_closed(tmp_path: Path) -> None:
    program = Told(tmp_path, bursts(40))
    program.run()
    assert program.received.completed[-1] == {"0": 40}
    assert program.received.closed_after == [len(program.received.completed)]


def test_a_plain_savepoint_does_not_notify_sources_of_completion(tmp_path: Path) -> None:
    program = Told(tmp_path, idle_after(20), **ONE)  # type: ignore[arg-type]
    job = program.launch()
    wait_for_records(job, 20)
    job.savepoint(str(tmp_path / "savepoints")).result(20)
    assert program.received.completed == []


def test_a_restored_source_gets_its_state_of_the_checkpoint(tmp_path: Path) -> None:
    program = Told(tmp_path, idle_after(20), **ONE)  # type: ignore[arg-type]
    job = program.launch()
    wait_for_records(job, 20)
    checkpoint(job)
    assert program.received.restored == []
    die(job)
    program.launch()
    eventually(lambda: program.received.restored == [b"at 20"])
    first, second = program.received.contexts
    assert first.job == second.job
    assert first.attempt != second.attempt


def test_a_source_knows_whether_there_will_be_checkpoints(tmp_path: Path) -> None:
    program = Told(tmp_path, bursts(10), interval=None, directory=None)
    program.run()
    assert [c.checkpointed for c in program.received.contexts] == [False]
