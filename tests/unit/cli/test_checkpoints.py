from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.checkpoint.history import (
    CheckpointRecord,
    ExceptionRecord,
    History,
    OperatorRecord,
    RecordStatus,
    Recovery,
)
from penstock.checkpoint.job_dir import JobDir, JobFacts, PlannedStep
from penstock.checkpoint.metadata import SubtaskStats
from penstock.checkpoint.story import StoryEvent, StoryLine
from tests.unit.cli.jobs_by_hand import end, endless_job, job_by_hand, json_of, penstock

STATS = SubtaskStats(0.5, 0.25, 0.001, 1.5, 1003.0, 2048, 100, 5000)


@pytest.fixture
def job(tmp_path: Path) -> JobDir:
    job = job_by_hand(tmp_path, "count")
    steps = [PlannedStep("src", "Source", 2), PlannedStep("cnt", "Count", 3)]
    job.write_facts(JobFacts("count", 1.0, plan=steps))
    history = History(job.storage)
    both = [OperatorRecord("src", "Source", [STATS, STATS]), OperatorRecord("cnt", "Count")]
    story = [
        StoryLine(1000.0, StoryEvent.TRIGGERED, None, "periodic"),
        StoryLine(1000.02, StoryEvent.BARRIER_INJECTED, "Source"),
    ]
    done, failed = RecordStatus.COMPLETED, RecordStatus.FAILED
    path = str(job.chk(1))
    history.write(
        CheckpointRecord(
            1, "periodic", done, "a1", 1000.0, 3.0, 200, 10_000, both, path, None, story
        )
    )
    history.write(
        CheckpointRecord(
            2,
            "periodic",
            failed,
            "a1",
            1010.0,
            60.0,
            operators=both[:1],
            failure="expired: too slow",
        )
    )
    history.write(
        CheckpointRecord(3, "savepoint", done, "a1", 1020.0, 2.0, 70, 70, both, "/sp/savepoint-x")
    )
    history.write(
        CheckpointRecord(4, "final", done, "a1", 1030.0, 2.0, 70, 70, both, "/sp/savepoint-y")
    )
    history.add_recovery(Recovery("a2", 1, "the driver died", 0.5, 2, 0.25, 0.125, 0.0625, 1040.0))
    history.add_recovery(Recovery("a3", None, "boom\ndetails", 0, 0, 0, 0, 0, 1050.0))
    history.add_exception(ExceptionRecord(1050.0, "a2", "Count", "boom\ndetails", "Traceback …"))
    return job


def test_checkpoints_are_listed_as_in_flinks_web_page_newest_first(
    job: JobDir, tmp_path: Path
) -> None:
    lines = penstock("checkpoints", "count", "--dir", tmp_path).stdout.splitlines()
    assert lines[0] == "job 'count' (count): SUSPENDED, 1 attempt"
    assert lines[2].split("  ")[0] == "ID"
    cells = [line.split() for line in lines[3:7]]
    assert [(c[0], c[1], c[2], c[3]) for c in cells] == [
        ("4", "COMPLETED", "final", "5/5"),
        ("3", "COMPLETED", "savepoint", "5/5"),
        ("2", "FAILED", "periodic", "2/5"),
        ("1", "COMPLETED", "periodic", "5/5"),
    ]
    assert lines[6].endswith("3.0 s     200 B    9.77 KB")
    assert lines[5].endswith("1 min 0 s         -          -")


def test_the_latest_of_each_kind_are_told_with_restores_and_exceptions(
    job: JobDir, tmp_path: Path
) -> None:
    text = penstock("checkpoints", "count", "--dir", tmp_path).stdout
    latest = {line[:19].strip(): line[19:] for line in text.splitlines()[8:]}
    assert latest["latest completed"].endswith(f": {job.chk(1)}")
    assert latest["latest failed"].endswith(": expired: too slow")
    assert latest["latest savepoint"].endswith(": /sp/savepoint-y")
    assert latest["latest restore"].startswith("attempt a3 from the beginning, ")
    assert latest["latest restore"].endswith(": boom")
    assert latest["exception"].endswith(", attempt a2, step 'Count': boom")


def test_a_restore_shows_its_five_times(job: JobDir, tmp_path: Path) -> None:
    shutil.rmtree(job.path / "history")
    history = History(job.storage)
    history.add_recovery(Recovery("a2", 7, "the driver died", 0.5, 2, 0.25, 0.125, 0.0625, 1040.0))
    text = penstock("checkpoints", "count", "--dir", tmp_path).stdout
    assert "no checkpoints yet" in text
    assert "attempt a2 from checkpoint 7, " in text
    assert (
        "detect 500 ms, redeploy 2.0 s, load state 250 ms, reset sources 125 ms, reset sinks 62 ms"
        in text
    )


def test_only_the_last_ones_are_shown(job: JobDir, tmp_path: Path) -> None:
    text = penstock("checkpoints", "count", "--dir", tmp_path, "--last", "1").stdout
    assert "3 older ones: --last 4 shows them" in text
    assert "periodic" not in text


def test_one_checkpoint_is_told_subtask_by_subtask_with_its_story(
    job: JobDir, tmp_path: Path
) -> None:
    text = penstock("checkpoints", "count", "1", "--dir", tmp_path).stdout
    assert text.startswith("checkpoint 1: COMPLETED, periodic, attempt a1\n")
    assert "9.77 KB in all, 200 B of them new" in text
    (row,) = (line.split() for line in text.splitlines() if line.startswith("        0"))
    assert " ".join(row) == "0 +3.0 s 500 ms 250 ms 1 ms 1.5 s 2 KB 100 B 4.88 KB"
    assert "Source  [src]" in text
    assert "Count  [cnt]" not in text  # it is chained, and has no figures of its own
    assert "   +0 ms  coordinator  triggered: periodic" in text
    assert "  +20 ms  Source       barrier injected" in text
    failed = penstock("checkpoints", "count", "2", "--dir", tmp_path).stdout
    assert "expired: too slow" in failed


def test_a_checkpoint_nobody_knows_of_is_named(job: JobDir, tmp_path: Path) -> None:
    result = penstock("checkpoints", "count", "99", "--dir", tmp_path)
    assert result.exit_code == 1
    assert "nothing is known of checkpoint 99 of job count" in result.stderr


def test_machines_get_all_of_it(job: JobDir, tmp_path: Path) -> None:
    facts = json_of(penstock("checkpoints", "count", "--dir", tmp_path, "--json"))
    assert [record["id"] for record in facts["checkpoints"]] == [4, 3, 2, 1]
    assert [recovery["attempt"] for recovery in facts["recoveries"]] == ["a3", "a2"]
    assert facts["exceptions"][0]["traceback"] == "Traceback …"
    one = json_of(penstock("checkpoints", "count", "1", "--dir", tmp_path, "--json"))
    assert one["operators"][0]["stats"][0]["start_delay_s"] == 0.5


# -- inspect ------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["hashmap", "rocksdb", "memory"])
def snapshots(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, Path]]:
    """A checkpoint and a savepoint of a job that still runs."""
    root = tmp_path_factory.mktemp(request.param)
    client = endless_job(root, state__backend__type=request.param)
    try:
        for _ in range(2):
            asked = penstock("checkpoint", "trigger", "endless", "--dir", root, "--json")
        checkpoint = Path(json_of(asked)["path"])
        asked = penstock("savepoint", "endless", root / "mine", "--dir", root, "--json")
        yield checkpoint, Path(json_of(asked)["path"])
    finally:
        end(client)


@pytest.fixture
def checkpoint(snapshots: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of the checkpoint, with all its files, to be damaged."""
    shutil.copytree(snapshots[0].parent, tmp_path / "job")
    return tmp_path / "job" / snapshots[0].name


@pytest.fixture
def savepoint(snapshots: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(snapshots[1], tmp_path / "savepoint"))


def files_of(path: Path) -> set[Path]:
    return set(path.rglob("*"))


def test_a_checkpoint_shows_operators_positions_states_and_that_it_is_whole(
    checkpoint: Path,
) -> None:
    before = files_of(checkpoint.parent)
    facts = json_of(penstock("checkpoint", "inspect", checkpoint, "--json"))
    assert (facts["kind"], facts["checkpoint"], facts["damage"]) == ("checkpoint", 2, [])
    by_name = {operator["name"]: operator for operator in facts["operators"]}
    assert by_name["Source: numbers"]["positions"]["0"] > 0
    remember = next(o for o in facts["operators"] if o["uid"] == "remember")
    assert (remember["parallelism"], remember["max_parallelism"]) == (2, 128)
    assert [s["first_key_group"] for s in remember["subtasks"]] == [0, 64]
    states = [state for subtask in remember["subtasks"] for state in subtask["states"]]
    entries = {
        name: sum(s["entries"] for s in states if s["name"] == name)
        for name in ("seen", "by parity")
    }
    assert entries == {"seen": 10, "by parity": 10}
    assert {(s["name"], s["kind"], s["type"]) for s in states} == {
        ("seen", "value state", "LONG"),
        ("by parity", "map state", "MAP(LONG, LONG)"),
    }
    assert files_of(checkpoint.parent) == before
    text = penstock("checkpoint", "inspect", checkpoint / "_metadata").stdout
    assert text.rstrip().endswith("every checksum is right")
    assert "by parity  map state    MAP(LONG, LONG)        0  0-63" in text


def test_a_savepoint_shows_the_same(savepoint: Path) -> None:
    facts = json_of(penstock("checkpoint", "inspect", savepoint, "--json"))
    assert (facts["kind"], facts["files"], facts["damage"]) == ("savepoint", 4, [])
    remember = next(o for o in facts["operators"] if o["uid"] == "remember")
    states = [state for subtask in remember["subtasks"] for state in subtask["states"]]
    assert sum(s["entries"] for s in states if s["name"] == "seen") == 10


def test_every_damaged_file_of_a_savepoint_is_named(savepoint: Path) -> None:
    first, second, *_ = sorted(savepoint.rglob("*.parquet"))
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    second.unlink()
    result = penstock("checkpoint", "inspect", savepoint)
    assert result.exit_code == 1
    assert f"  {first}: it has size {len(data)} and checksum" in result.stdout
    assert f"  {second}: it is missing" in result.stdout
    unread = penstock("checkpoint", "inspect", savepoint, "--metadata-only")
    assert unread.exit_code == 0
    assert "not read" in unread.stdout


def test_damaged_metadata_says_what_is_wrong(savepoint: Path) -> None:
    metadata = savepoint / "_metadata"
    metadata.write_bytes(metadata.read_bytes()[:-1])
    result = penstock("checkpoint", "inspect", savepoint)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"checkpoint metadata {metadata} cannot be used: it is cut short" in result.stderr


@pytest.mark.parametrize("snapshots", ["hashmap", "rocksdb"], indirect=True)
def test_every_damaged_file_of_a_checkpoint_is_named(checkpoint: Path) -> None:
    facts = json_of(penstock("checkpoint", "inspect", checkpoint, "--json"))
    files = [f for f in sorted((checkpoint.parent / "shared").rglob("*")) if f.is_file()]
    for file in files:
        file.write_bytes(file.read_bytes()[:-1])
    result = penstock("checkpoint", "inspect", checkpoint)
    assert result.exit_code == 1
    named = [
        file for file in files if f"  {file}: it has {file.stat().st_size} bytes" in result.stdout
    ]
    assert len(named) == facts["files"] > 0


def test_a_directory_that_is_no_snapshot_is_wrong_usage(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing", tmp_path / "_metadata"):
        result = penstock("checkpoint", "inspect", path)
        assert result.exit_code == 2
        assert "is no checkpoint and no savepoint" in result.stderr
