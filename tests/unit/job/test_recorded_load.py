"""What a job records about its load: per checkpoint, and after a recovery until it caught up."""

from __future__ import annotations

from pathlib import Path

from penstock.checkpoint.history import CheckpointStatus
from penstock.models.job_model import fit_job
from penstock.testing import Burst, Idle
from tests.unit.job.counting import Program, bursts, checkpoint, die, idle_after, wait_for_records
from tests.unit.support import eventually


def test_checkpoints_record_what_was_read_since_the_one_before(tmp_path: Path) -> None:
    program = Program(tmp_path, bursts(100, pause=0.02), interval="60 ms")
    program.run()
    done = [c for c in program.history().checkpoints() if c.status is CheckpointStatus.COMPLETED]
    spans = [s for c in done for s in (c.load_before, c.load_during) if s is not None]
    assert len(spans) == 2 * len(done) > 2
    assert sum(s.records for s in spans) == 100
    assert sum(s.batches for s in spans) > 0
    assert all(s.working_s <= s.busy_s for s in spans)


def test_a_recovery_records_size_age_and_catch_up(tmp_path: Path) -> None:
    first = Program(tmp_path, [Burst(range(40)), Idle()], interval="1 h")
    job = first.launch()
    wait_for_records(job, 40)
    checkpoint(job)
    die(job)
    # 80 records wait, and a micro-batch has at most 20.
    second = Program(tmp_path, [Burst(range(120)), Idle()], interval="1 h")
    job = second.launch()
    wait_for_records(job, 80)
    recovered = second.history().recoveries()[-1]
    assert recovered.loaded_bytes > 0
    assert recovered.snapshot_age_s is not None
    assert recovered.snapshot_age_s >= 0
    assert recovered.caught_up_s is None

    def is_completed() -> bool:
        # With the next checkpoint, once the loops have seen that there is no more.
        checkpoint(job)
        return second.history().recoveries()[-1].caught_up_s is not None

    eventually(is_completed)
    found = second.history().recoveries()[-1]
    assert found.catch_up_began_s is not None
    assert found.caught_up_s is not None
    assert 0 <= found.catch_up_began_s <= found.caught_up_s
    assert found.catch_up_records == 80
    assert found.attempt == recovered.attempt
    assert len(second.history().recoveries()) == 1
    die(job)


def test_the_models_of_a_real_job_are_fitted_to_its_history(tmp_path: Path) -> None:
    program = Program(tmp_path, idle_after(60), interval="20 ms")
    job = program.launch()
    eventually(lambda: len(program.history().checkpoints()) > 8)
    history = program.history()
    model = fit_job(history.checkpoints(), history.recoveries(), history.exceptions())
    assert model is not None
    assert model.cost.observations > 5
    assert model.interval_s is not None
    assert model.interval_s >= 0.02
    assert model.load.rate is not None
    die(job)
