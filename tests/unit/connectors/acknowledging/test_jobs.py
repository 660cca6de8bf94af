"""Whole jobs that acknowledge, with real threads, against a model of a broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.common import WatermarkStrategy
from penstock.connectors.contracts.source import EnumeratorContext, SourceEnumerator
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.errors import AcknowledgedRecordsError, InvalidJobError
from tests.unit.connectors.acknowledging.model_broker import ModelBroker, ModelSource
from tests.unit.job.counting import Program, checkpoint, die, launched, wait_for_records
from tests.unit.support import eventually

RECORDS = 200


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


class Numbers(ModelSource):
    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        self.broker.lives.append(context.lineage)
        return super().enumerator(context)

    def deserialize(self, payload: bytes) -> int:  # type: ignore[override]
        return int(payload[1:])


def full_broker(*, numbered: bool = True) -> ModelBroker:
    broker = ModelBroker(numbered=numbered)
    broker.delivers_again_when_connected = True
    broker.publish(RECORDS)
    return broker


@dataclass
class Acknowledging(Program):
    """Counts what a broker delivers."""

    broker: ModelBroker = field(default_factory=full_broker)

    def build(self) -> StreamExecutionEnvironment:
        env = self.environment()
        source = Numbers(self.broker)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        self.count(numbers.uid("numbers"))
        return env

    def run_to_completion(self) -> None:
        self.broker.is_bounded = True
        self.run()
        assert self.verdict(RECORDS).is_exactly_once, self.verdict(RECORDS)
        assert sorted(self.broker.acknowledged) == list(range(RECORDS))


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "named"])
def test_failing_steps_lose_and_duplicate_no_message(tmp_path: Path, numbered: bool) -> None:
    broker = full_broker(numbered=numbered)
    program = Acknowledging(tmp_path, fails=[30, 90, 150], broker=broker, interval="10 ms")
    program.run_to_completion()
    assert program.journal().attempts_so_far >= 3


def test_continued_attempts_share_a_lineage_and_fresh_jobs_have_their_own(
    tmp_path: Path,
) -> None:
    broker = full_broker()
    job = Acknowledging(tmp_path / "one", interval="10 h", broker=broker).launch()
    wait_for_records(job, 20)
    die(job)  # before any checkpoint
    Acknowledging(tmp_path / "one", interval="10 h", broker=broker).run_to_completion()
    Acknowledging(tmp_path / "one", interval="10 h", broker=broker).run()
    Acknowledging(tmp_path / "other", interval="10 h", broker=broker).run()
    first, again, anew, other = broker.lives
    assert first == again
    assert len({first, anew, other}) == 3


def test_a_killed_job_continues_with_what_was_not_acknowledged(tmp_path: Path) -> None:
    program = Acknowledging(tmp_path, interval="10 h")
    job = program.launch()
    wait_for_records(job, 20)
    checkpoint(job)
    wait_for_records(job, 60)
    die(job)
    program.run_to_completion()


def test_a_stop_acknowledges_and_a_plain_savepoint_does_not(tmp_path: Path) -> None:
    program = Acknowledging(tmp_path, interval="10 h")
    job = program.launch()
    wait_for_records(job, RECORDS)
    job.savepoint(str(tmp_path / "savepoints")).result(20)
    assert program.broker.acknowledged == []
    path = job.stop(str(tmp_path / "savepoints"), drain=False).result(20)
    assert job.wait_for_end(20)
    assert len(program.broker.acknowledged) == RECORDS
    program.settings["execution__state_recovery__path"] = path
    program.run_to_completion()


def test_a_savepoint_from_before_the_last_acknowledgement_is_rejected(tmp_path: Path) -> None:
    program = Acknowledging(tmp_path, interval="10 h")
    job = program.launch()
    wait_for_records(job, RECORDS)
    savepoint = job.savepoint(str(tmp_path / "savepoints")).result(20)
    program.broker.publish(1)
    wait_for_records(job, RECORDS + 1)
    checkpoint(job)
    eventually(lambda: len(program.broker.acknowledged) == RECORDS + 1)
    die(job)
    program.broker.is_bounded = True
    program.settings["execution__state_recovery__path"] = savepoint
    with pytest.raises(AcknowledgedRecordsError, match="record 201 of attempt a1"):
        program.run()


def test_a_job_without_checkpoints_is_rejected(tmp_path: Path) -> None:
    program = Acknowledging(tmp_path, interval=None, directory=None)
    with pytest.raises(InvalidJobError, match="enable_checkpointing"):
        program.run()


def test_rescaling_continues_reading(tmp_path: Path) -> None:
    program = Acknowledging(tmp_path, parallelism=3, interval="10 ms")
    job = program.launch()
    wait_for_records(job, 60)
    die(job)
    program.parallelism = 2
    program.run_to_completion()
