"""Jobs that an older version of the code left are restored, and go on exactly.

See `tests.golden.make_jobs` for how the directories were made. Every test starts the program of a
golden directory once more, gives it the rest of its input, and compares all output with all input.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.main import main
from tests.compatibility.conftest import Unpack, golden_jobs
from tests.golden.programs import counts, overtaken, received, states
from tests.golden.programs.running import BEFORE, Run

RESTORE = "execution.state-recovery.path"
BACKEND = "state.backend.type"


def told(*arguments: str | Path) -> Any:
    """Ask `penstock` for JSON."""
    result = CliRunner().invoke(main, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def inspected(snapshot: Path) -> dict[str, dict[str, Any]]:
    """Return the operators of a checkpoint or savepoint, by name."""
    return {o["name"]: o for o in told("checkpoint", "inspect", snapshot)["operators"]}


def newest_checkpoint(directory: Path) -> Path:
    found = directory.glob("checkpoints/*/chk-*")
    return max(found, key=lambda path: int(path.name.removeprefix("chk-")))


def hidden(directory: Path) -> list[Path]:
    """Return what sinks have staged and not yet shown."""
    return [p for p in (directory / "output").rglob("*") if p.suffix in (".pending", ".piece")]


# -- states -------------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", golden_jobs("hashmap", "rocksdb", "memory"))
def test_state_timers_and_pending_output_are_restored_by_automatic_uids(
    golden: Path, unpack: Unpack
) -> None:
    directory = unpack(golden)
    before = inspected(newest_checkpoint(directory))
    assert 0 < before["Source: numbers"]["positions"]["numbers"] < states.NUMBERS
    assert before["KEYED PROCESS"]["backend"] == golden.name
    assert before["Sink: TwoPhaseSink"]["committables"], "nothing was pending"
    assert hidden(directory), "nothing was pending"

    run = Run(directory, more=True, settings={BACKEND: golden.name})
    states.build(run).execute("states")
    assert states.faults(run) == []
    assert hidden(directory) == []


@pytest.mark.parametrize("golden", golden_jobs("hashmap"))
def test_the_age_of_state_is_restored(golden: Path, unpack: Unpack) -> None:
    directory = unpack(golden)
    before = inspected(newest_checkpoint(directory))
    cut = before["Source: numbers"]["positions"]["numbers"]
    run = Run(directory, more=True, now=BEFORE + 2 * states.HOUR)
    states.build(run).execute("states")
    assert states.faults(run, expired_from=cut) == []


@pytest.mark.parametrize("golden", golden_jobs("hashmap"))
def test_a_checkpoint_is_restored_with_another_parallelism(golden: Path, unpack: Unpack) -> None:
    run = Run(unpack(golden), more=True, parallelism=3)
    states.build(run).execute("states")
    assert states.faults(run, rescaled=True) == []


@pytest.mark.parametrize("golden", golden_jobs("savepoint"))
@pytest.mark.parametrize(("backend", "parallelism"), [("rocksdb", 1), ("memory", 3)])
def test_a_savepoint_is_restored_with_another_backend_and_parallelism(
    golden: Path, unpack: Unpack, backend: str, parallelism: int
) -> None:
    directory = unpack(golden)
    (saved,) = (directory / "savepoints").iterdir()
    restored = {RESTORE: str(saved), BACKEND: backend}
    run = Run(directory, more=True, parallelism=parallelism, settings=restored)
    states.build(run).execute("states")
    assert states.faults(run, rescaled=True) == []


@pytest.mark.parametrize("golden", golden_jobs("savepoint"))
def test_a_savepoint_that_was_moved_is_restored_by_another_job(
    golden: Path, unpack: Unpack, tmp_path: Path
) -> None:
    directory = unpack(golden)
    (saved,) = (directory / "savepoints").iterdir()
    moved = saved.rename(tmp_path / "moved")
    settings = {
        RESTORE: str(moved),
        "penstock.job-id": "another",
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "penstock.restore.allow-pickle": "true",
    }
    run = Run(directory, more=True, settings=settings)
    states.build(run).execute("states")
    assert states.faults(run) == []


# -- channels and sources -----------------------------------------------------------------------


@pytest.mark.parametrize("golden", golden_jobs("in-flight"))
def test_records_in_flight_are_delivered_once(golden: Path, unpack: Unpack) -> None:
    directory = unpack(golden)
    meet = inspected(newest_checkpoint(directory))["Keyed Co-Process"]
    assert len(meet["in_flight"]) == 3, "less was in flight than should"
    run = Run(directory, more=True)
    overtaken.build(run).execute("overtaken")
    assert overtaken.faults(run) == []


@pytest.mark.parametrize("golden", golden_jobs("socket-lines"))
def test_an_ingestion_log_is_read_where_the_checkpoint_was(golden: Path, unpack: Unpack) -> None:
    run = Run(unpack(golden), more=True)
    received.run_socket_job(run)
    assert Counter(run.lines("lines")) == Counter(f"got line {n}" for n in range(received.LINES))


@pytest.mark.parametrize("golden", golden_jobs("acknowledged"))
def test_messages_that_come_again_are_dropped_and_output_is_collected_once(
    golden: Path, unpack: Unpack
) -> None:
    run = Run(unpack(golden), more=True)
    assert list(run.directory.rglob("acknowledged*.json")), "nothing was acknowledged"
    before = received.collected(run)
    after = received.broker_job(run)
    everything = Counter(f"message-{n}" for n in range(received.MESSAGES))
    assert before
    assert Counter(before + after) == everything
    broker = received.FileBroker(run.directory / "broker", received.MESSAGES)
    assert broker.acknowledged() <= set(everything)


# -- journals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", golden_jobs("failed", "summary"))
def test_a_job_goes_on_from_its_journal(golden: Path, unpack: Unpack) -> None:
    run = Run(unpack(golden), more=True)
    counts.build(run).execute("counts")
    assert counts.faults(run) == []


@pytest.mark.parametrize("golden", golden_jobs("canceled"))
@pytest.mark.parametrize("snapshot", ["checkpoints/counts/chk-*", "savepoints/*"])
def test_a_snapshot_of_a_canceled_job_is_restored(
    golden: Path, unpack: Unpack, snapshot: str
) -> None:
    directory = unpack(golden)
    (restored,) = directory.glob(snapshot)
    run = Run(directory, more=True, settings={RESTORE: str(restored)})
    counts.build(run).execute("counts")
    assert counts.faults(run) == []


@pytest.mark.parametrize("golden", golden_jobs("hashmap", "failed", "summary"))
def test_a_moved_job_directory_is_read_all_the_same(golden: Path) -> None:
    for snapshot in golden.glob("checkpoints/*/chk-*"):
        assert told("checkpoint", "inspect", snapshot)["kind"] == "checkpoint"


STATUS = {
    "canceled": "CANCELED",
    "failed": "FAILED",
    "finished": "FINISHED",
    "savepoint": "STOPPED",
}
"""Of golden jobs that came to an end; all others have died."""


@pytest.mark.parametrize("golden", golden_jobs())
def test_the_command_reads_journal_and_history(golden: Path) -> None:
    (job,) = told("list", "--all", "--dir", golden / "checkpoints")
    assert job["status"] == STATUS.get(golden.name, "DIED")
    history = told("checkpoints", golden / "checkpoints" / job["id"])
    assert all(checkpoint["status"] != "PENDING" for checkpoint in history["checkpoints"])
    kept = list(golden.glob("checkpoints/*/history/[0-9]*.json"))
    assert len(history["checkpoints"]) >= len(kept)


SNAPSHOTS = [
    pytest.param(found.parent, id="-".join(found.parent.parts[-4:]))
    for golden in golden_jobs()
    for pattern in ("checkpoints/*/chk-*/_metadata", "savepoints/*/_metadata")
    for found in sorted(golden.values[0].glob(pattern))  # type: ignore[attr-defined]
]


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_the_command_finds_every_snapshot_whole(snapshot: Path) -> None:
    found = told("checkpoint", "inspect", snapshot)
    assert found["operators"]
    assert found["is_verified"]
    assert found["damage"] == []
