"""Programs that once lost order, state, files or a directory that was not theirs."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Encoder, JobStatus, Types, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, RuntimeContext
from penstock.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from penstock.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    StreamFormat,
)
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.functions import NullByteKeySelector
from penstock.datastream.state import ValueStateDescriptor
from penstock.errors import (
    InvalidJobError,
    NoPyFlinkNameError,
    StepError,
    UserFunctionError,
)
from penstock.ids import OperatorUid
from penstock.job.stage.micro_batch_size import SizeLimits, next_size
from penstock.task.layout import file_name
from tests.unit.support import collected, environment


def numbers(env: Any, count: int) -> Any:
    source = NumberSequenceSource(0, count - 1)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")


def test_a_uid_that_is_a_path_touches_nothing_outside_the_job(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("keep me")
    env = environment()
    env.from_collection([1, 2]).print().uid(str(precious))
    env.execute()
    assert (precious / "data").read_text() == "keep me"


@pytest.mark.parametrize("uid", ["/tmp/x", "..", "a/b", "x" * 300, "ä", ".hidden"])
def test_any_uid_becomes_one_plain_file_name(uid: str) -> None:
    name = file_name(OperatorUid(uid))
    assert "/" not in name
    assert not name.startswith(".")
    assert len(name) <= 64
    assert file_name(OperatorUid("count-1")) == "count-1"


def test_an_empty_uid_is_rejected() -> None:
    env = environment()
    env.from_collection([1]).map(str).uid("").print()
    with pytest.raises(InvalidJobError, match="empty uid"):
        env.execute()


def slowly(n: int) -> int:
    time.sleep(0.002)
    return n


def test_order_per_key_survives_a_stage_that_only_forwards() -> None:
    env = environment(2)
    # Small batches come faster than the slow step takes them: several wait in its channel.
    source = DataGeneratorSource(lambda n: n, 150, RateLimiterStrategy.per_second(1000))
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    stream = stream.union(numbers(env, 1))
    kept = collected(stream.map(slowly).disable_chaining().key_by(lambda n: 0).filter(bool))
    assert len(kept) == 149
    assert kept == sorted(kept)


class InOpen(KeyedProcessFunction[int, int, int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._state = runtime_context.get_state(ValueStateDescriptor("s", Types.LONG()))
        self._state.update(41)

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[int]:
        yield value


def test_keyed_state_without_a_current_record_is_rejected() -> None:
    env = environment()
    with pytest.raises(StepError, match="not in open"):
        collected(env.from_collection([1]).key_by(lambda n: n).process(InOpen()))


def file_sink(path: Path) -> FileSink:
    return (
        FileSink.for_row_format(str(path), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )


@pytest.mark.parametrize("same_stage", [True, False])
def test_one_file_sink_may_end_two_streams(tmp_path: Path, same_stage: bool) -> None:
    env = environment()
    sink = file_sink(tmp_path)
    stream = env.from_collection(["a", "b"], Types.STRING())
    stream.sink_to(sink)
    (stream if same_stage else stream.rebalance()).sink_to(sink)
    env.execute()
    lines = [line for part in tmp_path.iterdir() for line in part.read_text().splitlines()]
    assert sorted(lines) == ["a", "a", "b", "b"]


def test_a_declared_type_of_a_source_is_checked_on_its_way_into_an_exchange(
    tmp_path: Path,
) -> None:
    (tmp_path / "lines").write_text("a\n")
    source = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(tmp_path)
    ).build()
    env = environment()
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines", Types.INT())
    with pytest.raises(StepError, match="'a'"):
        collected(lines.key_by(lambda line: line).filter(bool))


def test_a_batch_too_slow_for_its_few_records_shrinks_from_what_it_took() -> None:
    limits = SizeLimits(target_seconds=1.0, initial=20_000, maximum=1_000_000, minimum=10)
    assert next_size(20_000, 1_300, 30.0, 29.0, limits) == 650


def test_settings_on_what_is_no_step_are_rejected() -> None:
    stream = environment().from_collection([1]).map(str)
    with pytest.raises(InvalidJobError, match=r"rebalance\(\) is not a step"):
        stream.rebalance().name("oops")
    with pytest.raises(InvalidJobError, match=r"key_by\(\) is not a step"):
        stream.key_by(len).start_new_chain()
    with pytest.raises(InvalidJobError, match="limit"):
        stream.execute_and_collect(limit=0)


def test_a_function_that_exits_fails_the_job_with_a_sentence() -> None:
    env = environment()
    with pytest.raises(UserFunctionError, match=r"'Map' failed on record 1: it called exit\(\)"):
        collected(env.from_collection([1]).map(lambda n: sys.exit(3)))


PROGRAM = """
    from penstock.common import WatermarkStrategy
    from penstock.datastream import StreamExecutionEnvironment
    from penstock.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
    from penstock.testing.inline import run_inline

    env = run_inline(StreamExecutionEnvironment.get_execution_environment())
    source = DataGeneratorSource(lambda n: n, 10**9, RateLimiterStrategy.per_second(1000))
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    stream.key_by(lambda n: n).filter(lambda n: True).print()
    env.execute_async()
"""


def test_a_program_that_ends_before_its_job_leaves_no_files(tmp_path: Path) -> None:
    settings = {"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    program = textwrap.dedent(PROGRAM)
    subprocess.run([sys.executable, "-c", program], env=settings, check=True, timeout=60)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda s: s.map(str, output_type=Types.STRING), "did you forget the parentheses"),
        (lambda s: s.map(str, str), "output_type must be a type"),
        (lambda s: s.key_by(len, key_type=Types.LONG), "key_type must be a type"),
        (lambda s: s.process(InOpen), "ProcessFunction"),
        (lambda s: s.key_by(NullByteKeySelector), "did you mean NullByteKeySelector()"),
        (lambda s: s._env.from_collection([1], Types.INT), "type_info must be a type"),
        (lambda s: s._env.socket_text_stream("localhost", 99999), "from 1 to 65535; got 99999"),
    ],
)
def test_a_slip_is_rejected_where_it_is_written(build: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(InvalidJobError) as caught:
        build(environment().from_collection(["a"]))
    assert text in str(caught.value)


def test_a_flat_map_that_returns_no_iterable_is_an_error() -> None:
    env = environment()
    with pytest.raises(UserFunctionError, match="must return an iterable or None; it returned 7"):
        collected(env.from_collection([7]).flat_map(lambda n: n))


def test_a_failed_job_without_a_waiting_client_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    env = environment()
    env.from_collection([0]).map(lambda n: 1 // n).print()
    client = env.execute_async("bad")
    while client.get_job_status().result() is JobStatus.RUNNING:
        time.sleep(0.01)
    time.sleep(0.2)
    assert any("Job 'bad' failed: step 'Map'" in message for message in caplog.messages)


def test_a_missing_name_of_pyflink_is_distinguished_from_a_typo() -> None:
    env: Any = environment()
    with pytest.raises(AttributeError, match=r"\.add_source is not in penstock: it wraps a Java"):
        env.add_source(None)
    with pytest.raises(AttributeError, match="set_uid_hash is not in penstock: it names a step"):
        env.from_collection([1]).set_uid_hash("1")
    with pytest.raises(AttributeError, match="has no attribute 'mapp'"):
        env.from_collection([1]).mapp(str)
    from penstock.datastream import SinkFunction  # type: ignore[attr-defined]

    with pytest.raises(
        NoPyFlinkNameError, match="SinkFunction is not in penstock: it wraps a Java sink"
    ):
        SinkFunction()
