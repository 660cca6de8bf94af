"""Timers of a job that is stopped with a savepoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.discarding_sink import DiscardingSink
from penstock.crash_points import CrashPoint, arm, disarm
from penstock.datastream import CheckpointListener, KeyedProcessFunction
from penstock.errors import CheckpointFailedError
from penstock.job.input.channel_input import ChannelInput
from penstock.job.launched_job import LaunchedJob
from penstock.testing import Burst, Idle, ManualClock, ScriptedSource
from penstock.testing.inline import run_inline
from tests.unit.job.counting import launched, wait_for_records
from tests.unit.support import environment, eventually

KEYS = 20


class Fires(KeyedProcessFunction[Any, int, int]):
    """Sets a processing-time timer for every key, and writes down which of them fired."""

    def __init__(self, fired: Path) -> None:
        self._fired = fired

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[int]:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 10_000)
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[int]:
        with self._fired.open("a") as file:
            file.write(f"{ctx.get_current_key()}\n")
        return ()


class Listens(Fires, CheckpointListener):
    """Is also notified of checkpoints."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        pass


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    yield
    disarm()
    for job in launched:
        job.kill()
    launched.clear()


def start(tmp_path: Path, function: Fires, clock: ManualClock, **settings: str) -> LaunchedJob:
    settings["execution__checkpointing__dir"] = str(tmp_path / "checkpoints")
    env = run_inline(environment(1, **settings), clock)
    source = ScriptedSource([Burst(range(KEYS)), Idle()], Types.LONG())
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    timers = numbers.key_by(lambda n: n, Types.LONG()).process(function, Types.LONG()).uid("fires")
    timers.sink_to(DiscardingSink()).uid("sink")
    job = env._launch("timers")
    job.result()
    launched.append(job)
    return job


@pytest.mark.parametrize("kind", [Fires, Listens])
def test_timers_that_become_due_after_the_snapshot_of_a_stop_fire_once_after_the_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Fires]
) -> None:
    fired, clock, polls = tmp_path / "fired", ManualClock(1_000.0), [0]
    fired.touch()
    poll = ChannelInput.poll

    def counted_poll(self: ChannelInput, *args: Any) -> Any:
        polls[0] += 1
        return poll(self, *args)

    def become_due() -> None:
        """All stages have taken their snapshots, and the job has not ended yet."""
        clock.advance(60.0)
        for _ in range(3):
            seen = polls[0]
            job._running.attempt.wake()  # type: ignore[union-attr]
            eventually(lambda seen=seen: polls[0] > seen)  # type: ignore[misc]

    job = start(tmp_path, kind(fired), clock)
    wait_for_records(job, KEYS)
    monkeypatch.setattr(ChannelInput, "poll", counted_poll)
    arm(CrashPoint.COORDINATOR_METADATA_WRITTEN, 1, become_due)
    savepoint = job.stop(str(tmp_path / "savepoints"), drain=False).result(20)
    assert job.wait_for_end(20)
    assert fired.read_text() == ""
    restored = {"execution__state_recovery__path": savepoint}
    again = start(tmp_path, kind(fired), clock, **restored)
    eventually(lambda: len(fired.read_text().split()) >= KEYS)
    again.cancel()
    assert again.wait_for_end(20)
    assert sorted(map(int, fired.read_text().split())) == list(range(KEYS))


def test_timers_fire_if_the_stop_fails(tmp_path: Path) -> None:
    fired, clock = tmp_path / "fired", ManualClock(1_000.0)
    job = start(tmp_path, Fires(fired), clock)
    wait_for_records(job, KEYS)
    (tmp_path / "savepoints").write_text("not a directory")
    with pytest.raises(CheckpointFailedError):
        job.stop(str(tmp_path / "savepoints"), drain=False).result(20)
    clock.advance(60.0)
    job._running.attempt.wake()  # type: ignore[union-attr]
    eventually(lambda: fired.exists() and len(fired.read_text().split()) == KEYS)
