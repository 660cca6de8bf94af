"""What a source hears of checkpoints, and what a checkpoint keeps for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.source import EnumeratorContext, SourceEnumerator
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
class Heard:
    """What the enumerators of one test were told, in order."""

    completed: list[dict[str, int]] = field(default_factory=list)
    recalled: list[bytes] = field(default_factory=list)
    closed_after: list[int] = field(default_factory=list)
    contexts: list[EnumeratorContext] = field(default_factory=list)


class TellingSource(ScriptedSource):
    """A scripted source that writes down what it hears."""

    heard: ClassVar[Heard]

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        inner, heard = super().enumerator(context), self.heard
        heard.contexts.append(context)

        class Telling(type(inner)):  # type: ignore[misc]
            def memory(self) -> bytes:
                return f"at {self.positions()['0']}".encode()

            def recall(self, memory: bytes) -> None:
                heard.recalled.append(memory)

            def completed(self, positions: Mapping[str, int]) -> None:
                heard.completed.append(dict(positions))

            def close(self) -> None:
                heard.closed_after.append(len(heard.completed))
                super().close()

        inner.__class__ = Telling
        return inner


@dataclass
class Told(Program):
    """Counts what a telling source gives."""

    heard: Heard = field(default_factory=Heard)

    def build(self) -> StreamExecutionEnvironment:
        env = self.environment()
        TellingSource.heard = self.heard
        source: Any = TellingSource(self.script, Types.LONG(), self.clock)
        self.count(env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers"))
        return env


def test_a_source_hears_of_a_checkpoint_once_it_is_completed(tmp_path: Path) -> None:
    program = Told(tmp_path, [Burst(range(20)), Idle()], **ONE)  # type: ignore[arg-type]
    job = program.launch()
    wait_for_records(job, 20)
    assert program.heard.completed == []
    checkpoint(job)
    eventually(lambda: program.heard.completed == [{"0": 20}])


def test_a_source_hears_of_the_last_checkpoint_before_it_is_closed(tmp_path: Path) -> None:
    program = Told(tmp_path, bursts(40))
    program.run()
    assert program.heard.completed[-1] == {"0": 40}
    assert program.heard.closed_after == [len(program.heard.completed)]


def test_a_plain_savepoint_is_nothing_a_source_may_tell_others_of(tmp_path: Path) -> None:
    program = Told(tmp_path, idle_after(20), **ONE)  # type: ignore[arg-type]
    job = program.launch()
    wait_for_records(job, 20)
    job.savepoint(str(tmp_path / "savepoints")).result(20)
    assert program.heard.completed == []


def test_a_restored_source_recalls_what_it_knew_at_the_cut(tmp_path: Path) -> None:
    program = Told(tmp_path, idle_after(20), **ONE)  # type: ignore[arg-type]
    job = program.launch()
    wait_for_records(job, 20)
    checkpoint(job)
    assert program.heard.recalled == []
    die(job)
    program.launch()
    eventually(lambda: program.heard.recalled == [b"at 20"])
    first, second = program.heard.contexts
    assert first.job == second.job
    assert first.attempt != second.attempt


def test_a_source_knows_whether_there_will_be_checkpoints(tmp_path: Path) -> None:
    program = Told(tmp_path, bursts(10), interval=None, directory=None)
    program.run()
    assert [c.checkpointed for c in program.heard.contexts] == [False]
