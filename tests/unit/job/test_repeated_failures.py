"""A failure that no restart can repair ends a job, whatever its restart strategy is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration, Encoder, Types, WatermarkStrategy
from penstock.datastream import (
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    StreamFormat,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.errors import (
    PenstockError,
    StateTypeMismatchError,
    StepError,
    TextDecodingError,
    UserFunctionError,
)
from penstock.job.settings import read_settings
from tests.unit.support import environment

HERE = Path(__file__)


class Fails(MapFunction[int, int]):
    """Fails on record 5, and counts how often in a file; stops failing after some times."""

    def __init__(self, file: Path, error: Exception, times: int = 1000) -> None:
        self._file = file
        self._error = error
        self._times = times

    def map(self, value: int) -> int:
        if value == 5:
            with self._file.open("a") as file:
                file.write("x")
            if len(self._file.read_text()) <= self._times:
                raise self._error
        return value


class ByName(BucketAssigner):
    def assigner(self) -> Callable[[str], str]:
        return lambda name: name


class StoresText(KeyedProcessFunction[int, int, int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.INT()))

    def process_element(self, value: int, ctx: Any) -> Any:
        self.seen.update("text")
        yield value


def restarting(limit: int = 10) -> StreamExecutionEnvironment:
    """An environment whose jobs restart without end, and without delay."""
    return environment(
        execution__checkpointing__interval="10 ms",
        restart_strategy__type="exponential-delay",
        restart_strategy__exponential_delay__initial_backoff="1 ms",
        restart_strategy__exponential_delay__max_backoff="1 ms",
        penstock__recovery__max_identical_failures=str(limit),
    )


def run(env: StreamExecutionEnvironment, file: Path, error: Exception, times: int = 1000) -> int:
    """Run a job that fails on a record; return in how many attempts it did."""
    env.from_collection(range(10)).map(Fails(file, error, times)).name("parse").print()
    try:
        env.execute()
    finally:
        attempts = len(file.read_text())
    return attempts


def test_a_record_that_fails_in_every_attempt_ends_the_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = restarting(3)
    with caplog.at_level(logging.WARNING), pytest.raises(UserFunctionError, match="step 'parse'"):
        run(env, tmp_path / "failures", ValueError("poison"))
    assert len((tmp_path / "failures").read_text()) == 3
    assert "is not restarted: the same failure, of the same data, ended 3 attempts" in caplog.text


def test_by_default_it_ends_after_ten_attempts() -> None:
    assert read_settings(Configuration(), False).max_identical_failures == 10


def test_a_job_survives_an_outage_that_is_longer_than_the_limit(tmp_path: Path) -> None:
    env = restarting(2)
    assert run(env, tmp_path / "failures", ConnectionRefusedError("down"), times=12) == 13


def test_a_state_value_of_the_wrong_type_ends_the_job_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env = restarting()
    keyed = env.from_collection([1], Types.INT()).key_by(lambda v: v, Types.INT())
    keyed.process(StoresText(), Types.INT()).name("store").print()
    with pytest.raises(StateTypeMismatchError) as caught:
        env.execute()
    line = StoresText.process_element.__code__.co_firstlineno + 1
    assert str(caught.value).endswith(f"got 'text'; it was stored at {HERE}:{line}")
    assert "restarts in" not in caplog.text


def test_a_record_of_the_wrong_type_ends_the_job_at_once(caplog: pytest.LogCaptureFixture) -> None:
    env = restarting()
    env.from_collection([1]).map(str, Types.INT()).rebalance().map(str).print()
    with pytest.raises(PenstockError, match="does not match its declared type"):
        env.execute()
    assert "restarts in" not in caplog.text


def test_a_file_that_cannot_be_read_in_any_attempt_ends_the_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "lines.txt").write_bytes(b"good\n\xff\n")
    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
    env = restarting(2)
    env.from_source(lines.build(), WatermarkStrategy.no_watermarks(), "lines").print()
    with pytest.raises(TextDecodingError):
        env.execute()
    assert caplog.text.count("restarts in") == 1


def test_a_record_that_a_sink_cannot_write_in_any_attempt_ends_the_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    env = restarting(2)
    env.from_collection(["../up"]).sink_to(sink.with_bucket_assigner(ByName()).build())
    with pytest.raises(StepError, match="up"):
        env.execute()
    assert caplog.text.count("restarts in") == 1
