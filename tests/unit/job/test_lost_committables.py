"""A snapshot that fails after the pre-commit of its sinks must not lose their output."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Encoder, Types, WatermarkStrategy
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.job.snapshot.stage_state import StageState
from penstock.testing import Burst, Pause, ScriptedSource, compare, read_lines
from tests.unit.support import environment


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_committables_of_a_failed_checkpoint_go_into_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    make_durable, calls = StageState.make_durable, [0]

    def full_once(self: StageState, frozen: Any) -> Any:
        if self.backend_name is not None:
            calls[0] += 1
            if calls[0] == failing:
                raise OSError(errno.ENOSPC, "No space left on device")
        return make_durable(self, frozen)

    monkeypatch.setattr(StageState, "make_durable", full_once)
    env = environment(
        execution__checkpointing__dir=str(tmp_path / "checkpoints"),
        execution__checkpointing__interval="15 ms",
        execution__checkpointing__tolerable_failed_checkpoints="5",
    )
    steps = [step for n in range(20) for step in (Burst(range(n * 5, n * 5 + 5)), Pause(0.01))]
    sink = FileSink.for_row_format(tmp_path / "out", Encoder.simple_string_encoder())
    (
        env.from_source(
            ScriptedSource(steps, Types.LONG()), WatermarkStrategy.no_watermarks(), "numbers"
        )
        .key_by(lambda n: n % 3, Types.LONG())
        .reduce(lambda _, n: n)
        .sink_to(sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build())
    )
    env.execute("lost committables")
    assert calls[0] > failing
    verdict = compare(map(str, range(100)), read_lines(tmp_path / "out"))
    assert verdict.is_exactly_once, verdict
