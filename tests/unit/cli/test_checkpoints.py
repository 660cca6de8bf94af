from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.channel.columns import RecordLayout
from penstock.channel.segment import SegmentWriter
from penstock.checkpoint.event_log import CheckpointEvent, CheckpointEventRecord
from penstock.checkpoint.history import (
    CheckpointStats,
    CheckpointStatus,
    ExceptionRecord,
    History,
    OperatorStats,
    Recovery,
)
from penstock.checkpoint.storage.job_dir import JobDir, JobFacts, PlannedStep
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import AttemptStarted
from penstock.checkpoint.storage.metadata import (
    ChannelState,
    ChannelStats,
    CheckpointMetadata,
    OperatorSnapshot,
    SourceState,
    SubtaskStats,
    in_flight_file,
)
from penstock.checkpoint.storage.metadata_serializer import encode_metadata
from penstock.connectors.contracts.source import EnumeratorContext
from penstock.connectors.files.source import FileSource
from penstock.connectors.formats.text_lines import StreamFormat
from tests.local_paths import local
from tests.unit.cli.job_fixtures import (
    end,
    endless_job,
    job_directory,
    json_of,
    penstock,
    set_driver,
)

STATS = SubtaskStats(0.5, 0.25, 0.001, 1.5, 1003.0, 2048, 100, 5000)
OVERTAKEN = SubtaskStats(0.5, 0.0, 0.001, 1.5, 1003.0, 0, 100, 5000, 3072, unaligned=True)


@pytest.fixture
def job(tmp_path: Path) -> JobDir:
    job = job_directory(tmp_path, "count")
    steps = [PlannedStep("src", "Source", 2), PlannedStep("cnt", "Count", 3)]
    job.write_facts(JobFacts("count", 1.0, plan=steps))
    job.storage.create("chk-1/_metadata", b"")
    history = History(job.storage)
    both = [OperatorStats("src", "Source", [STATS, STATS]), OperatorStats("cnt", "Count")]
    events = [
        CheckpointEventRecord(1000.0, CheckpointEvent.TRIGGERED, None, "periodic"),
        CheckpointEventRecord(1000.02, CheckpointEvent.BARRIER_INJECTED, "Source"),
    ]
    done, failed = CheckpointStatus.COMPLETED, CheckpointStatus.FAILED
    path = str(job.checkpoint_dir(1))
    history.write(
        CheckpointStats(
            1, "periodic", done, "a1", 1000.0, 3.0, 200, 10_000, both, path, None, events
        )
    )
    history.write(
        CheckpointStats(
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
        CheckpointStats(3, "savepoint", done, "a1", 1020.0, 2.0, 70, 70, both, "/sp/savepoint-x")
    )
    history.write(
        CheckpointStats(4, "final", done, "a1", 1030.0, 2.0, 70, 70, both, "/sp/savepoint-y")
    )
    history.add_recovery(Recovery("a2", 1, "the driver died", 0.5, 2, 0.25, 0.125, 0.0625, 1040.0))
    history.add_recovery(Recovery("a3", None, "boom\ndetails", 0, 0, 0, 0, 0, 1050.0))
    history.add_exception(ExceptionRecord(1050.0, "a2", "Count", "boom\ndetails", "Traceback …"))
    return job


def test_checkpoints_are_listed_as_in_flinks_web_ui_newest_first(
    job: JobDir, tmp_path: Path
) -> None:
    lines = penstock("checkpoints", "count", "--dir", tmp_path).stdout.splitlines()
    assert lines[0] == "job 'count' (count): SUSPENDED, 1 attempt"
    assert lines[2].split("  ")[0] == "ID"
    cells = [line.split() for line in lines[3:7]]
    assert [(c[0], c[1], c[2], c[4]) for c in cells] == [
        ("4", "COMPLETED", "final", "5/5"),
        ("3", "COMPLETED", "savepoint", "5/5"),
        ("2", "FAILED", "periodic", "2/5"),
        ("1", "COMPLETED", "periodic", "5/5"),
    ]
    assert lines[6].endswith("3.0 s      0 B        0 B     200 B    9.77 KB  no")
    assert lines[5].endswith("1 min 0 s      0 B        0 B         -          -  -")


def test_the_latest_of_each_kind_are_shown_with_restores_and_exceptions(
    job: JobDir, tmp_path: Path
) -> None:
    text = penstock("checkpoints", "count", "--dir", tmp_path).stdout
    latest = {line[:19].strip(): line[19:] for line in text.splitlines()[8:]}
    assert latest["latest completed"].endswith(f": {job.checkpoint_dir(1)}")
    assert latest["latest failed"].endswith(": expired: too slow")
    assert latest["latest savepoint"].endswith(": /sp/savepoint-y, discarded")
    assert latest["latest restore"].startswith("attempt a3 from the beginning, ")
    assert latest["latest restore"].endswith(": boom")
    assert latest["exception"].endswith(", attempt a2, step 'Count': boom")


def test_a_restore_shows_its_five_times(job: JobDir, tmp_path: Path) -> None:
    shutil.rmtree(local(job.path / "history"))
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
    assert "3 older: --last 4 shows them" in text
    assert "periodic" not in text


def test_one_checkpoint_is_shown_by_subtask_with_its_events(job: JobDir, tmp_path: Path) -> None:
    text = penstock("checkpoints", "count", "1", "--dir", tmp_path).stdout
    assert text.startswith("checkpoint 1: COMPLETED, periodic, attempt a1\n")
    assert "9.77 KB in all, 200 B of them new" in text
    (row,) = (line.split() for line in text.splitlines() if line.startswith("        0"))
    assert " ".join(row) == "0 +3.0 s 500 ms 250 ms 1 ms 1.5 s 2 KB 0 B 100 B 4.88 KB"
    assert "took 3.0 s, barriers aligned" in text
    assert "INPUT" not in text  # this record has no channels
    assert "Source  [src]" in text
    assert "Count  [cnt]" not in text  # it is chained and has no statistics
    assert "   +0 ms  coordinator  triggered: periodic" in text
    assert "  +20 ms  Source       barrier injected" in text
    failed = penstock("checkpoints", "count", "2", "--dir", tmp_path).stdout
    assert "expired: too slow" in failed


def test_a_snapshot_that_was_deleted_is_shown_as_discarded(job: JobDir, tmp_path: Path) -> None:
    facts = json_of(penstock("checkpoints", "count", "--dir", tmp_path, "--json"))
    assert {r["id"]: r["discarded"] for r in facts["checkpoints"]} == {
        4: True,
        3: True,
        2: False,
        1: False,
    }
    local(job.metadata(1)).unlink()
    text = penstock("checkpoints", "count", "--dir", tmp_path).stdout
    row = next(line for line in text.splitlines() if line.startswith(" 1 "))
    assert row.endswith(" yes")
    assert f": {job.checkpoint_dir(1)}, discarded\n" in text
    one = ("checkpoints", "count", "1", "--dir", tmp_path)
    assert f"\n{job.checkpoint_dir(1)}, discarded\n" in penstock(*one).stdout
    assert json_of(penstock(*one, "--json"))["discarded"] is True


def test_a_checkpoint_is_found_after_its_job_was_moved(job: JobDir, tmp_path: Path) -> None:
    shutil.move(local(job.path), tmp_path / "moved" / job.key)
    one = ("checkpoints", "count", "1", "--dir", tmp_path / "moved", "--json")
    found = json_of(penstock(*one))
    there = str(tmp_path / "moved" / job.key / "chk-1")
    assert (found["path"], found["discarded"]) == (there, False)


def test_an_unknown_checkpoint_is_named(job: JobDir, tmp_path: Path) -> None:
    result = penstock("checkpoints", "count", "99", "--dir", tmp_path)
    assert result.exit_code == 1
    assert "Job count has no record of checkpoint 99." in result.stderr


def test_json_has_everything(job: JobDir, tmp_path: Path) -> None:
    facts = json_of(penstock("checkpoints", "count", "--dir", tmp_path, "--json"))
    assert [record["id"] for record in facts["checkpoints"]] == [4, 3, 2, 1]
    assert [recovery["attempt"] for recovery in facts["recoveries"]] == ["a3", "a2"]
    assert facts["exceptions"][0]["traceback"] == "Traceback …"
    one = json_of(penstock("checkpoints", "count", "1", "--dir", tmp_path, "--json"))
    assert one["operators"][0]["stats"][0]["start_delay_s"] == 0.5


# -- unaligned barriers -------------------------------------------------------------------------


@pytest.fixture
def overtaken(job: JobDir) -> History:
    channels = [
        ChannelStats("src", "Source", 1, 0, 3072, 1234),
        ChannelStats("other", "Other", 2, 512, 0, 0),
    ]
    history = History(job.storage)
    history.write(
        CheckpointStats(
            5,
            "periodic",
            CheckpointStatus.COMPLETED,
            "a1",
            1000.0,
            3.0,
            9000,
            10_000,
            [OperatorStats("cnt", "Count", [OVERTAKEN], channels)],
            str(job.checkpoint_dir(5)),
            barriers="unaligned",
            blocked_bytes=512,
            in_flight_bytes=3072,
        )
    )
    return history


def test_barrier_handling_and_in_flight_data_are_shown(overtaken: History, tmp_path: Path) -> None:
    lines = penstock("checkpoints", "count", "--dir", tmp_path).stdout.splitlines()
    heads = " ".join(lines[2].split())
    assert heads == (
        "ID STATUS KIND BARRIERS ACKNOWLEDGED TRIGGER TIME END TO END BLOCKED IN FLIGHT NEW SIZE "
        "FULL SIZE DISCARDED"
    )
    assert lines[3].split()[:4] == ["5", "COMPLETED", "periodic", "unaligned"]
    assert lines[3].endswith("3.0 s    512 B       3 KB   8.79 KB    9.77 KB  yes")


def test_one_checkpoint_is_shown_by_channel(overtaken: History, tmp_path: Path) -> None:
    text = penstock("checkpoints", "count", "5", "--dir", tmp_path).stdout
    assert "took 3.0 s, barriers unaligned" in text
    assert "9.77 KB in all, 8.79 KB of them new, 3 KB in flight" in text
    channels = text.split("RECORDS IN FLIGHT\n")[1].splitlines()
    assert [" ".join(line.split()) for line in channels] == [
        "1 Source 0 B 3 KB 1,234",
        "2 Other 512 B 0 B 0",
    ]


def test_json_has_the_channels(overtaken: History, tmp_path: Path) -> None:
    one = json_of(penstock("checkpoints", "count", "5", "--dir", tmp_path, "--json"))
    assert (one["barriers"], one["bytes_held"], one["in_flight_bytes"]) == ("unaligned", 512, 3072)
    assert one["operators"][0]["stats"][0]["unaligned"]
    assert one["operators"][0]["channels"][0] == {
        "producer": "src",
        "producer_name": "Source",
        "input": 1,
        "bytes_held": 0,
        "in_flight_bytes": 3072,
        "in_flight_records": 1234,
    }


# -- pending ones -------------------------------------------------------------------------------


@pytest.fixture
def begun(job: JobDir) -> JobDir:
    operators = [OperatorStats("src", "Source", [STATS, STATS])]
    History(job.storage).write(
        CheckpointStats(
            6, "periodic", CheckpointStatus.PENDING, "a1", time.time() - 90, operators=operators
        )
    )
    return job


def test_a_pending_checkpoint_shows_its_progress(begun: JobDir, tmp_path: Path) -> None:
    set_driver(begun, os.getpid())
    text = penstock("checkpoints", "count", "--dir", tmp_path).stdout
    row = next(line.split() for line in text.splitlines() if line.startswith(" 6"))
    assert row[:5] == ["6", "PENDING", "periodic", "aligned", "2/5"]
    assert "1 min 30 s" in text
    assert "pending            6, " in text
    one = penstock("checkpoints", "count", "6", "--dir", tmp_path).stdout
    assert "has taken 1 min 30 s" in one
    assert "acknowledged by 2/5 subtasks" in one


def test_a_pending_checkpoint_of_an_ended_attempt_has_failed(begun: JobDir, tmp_path: Path) -> None:
    facts = json_of(penstock("checkpoints", "count", "--dir", tmp_path, "--json"))
    newest = facts["checkpoints"][0]
    assert (newest["id"], newest["status"]) == (6, "FAILED")
    assert newest["failure"] == "attempt a1 ended before the checkpoint was complete"
    # The job runs again, and this is not what its new attempt works on.
    journal = Journal(begun.storage, begun.key)
    journal.state()
    journal.append(AttemptStarted("a2", 1_100.0, "somewhere", 1))
    set_driver(begun, os.getpid())
    one = json_of(penstock("checkpoints", "count", "6", "--dir", tmp_path, "--json"))
    assert one["status"] == "FAILED"


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
            answer = penstock("checkpoint", "trigger", "endless", "--dir", root, "--json")
        checkpoint = Path(json_of(answer)["path"])
        answer = penstock("savepoint", "endless", root / "mine", "--dir", root, "--json")
        yield checkpoint, Path(json_of(answer)["path"])
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


def test_a_checkpoint_shows_operators_positions_states_and_verification(
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
    assert text.rstrip().endswith("all checksums are correct")
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
    assert f"  {first}: its checksum is " in result.stdout
    assert f"  {second}: it is missing" in result.stdout
    unread = penstock("checkpoint", "inspect", savepoint, "--metadata-only")
    assert unread.exit_code == 0
    assert "not read" in unread.stdout


def test_damaged_metadata_says_what_is_wrong(savepoint: Path) -> None:
    metadata = savepoint / "_metadata"
    metadata.write_bytes(metadata.read_bytes()[:-1])
    result = penstock("checkpoint", "inspect", savepoint)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"checkpoint metadata {metadata} cannot be used: it is truncated" in result.stderr


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


@pytest.fixture
def with_records(tmp_path: Path) -> tuple[Path, Path]:
    """A checkpoint with records in flight, and the file they are in."""
    writer = SegmentWriter(tmp_path / "written.arrow", 2)
    writer.write(1, (RecordLayout.SCALAR, [pa.array(range(1500))]))
    segment = writer.finish()
    assert segment is not None
    state = ChannelState(
        producer="src",
        input=1,
        ordinal=0,
        exchange="hash",
        parallelism=2,
        type="LONG",
        attempt="a1",
        start=3,
        end=5,
        entries=[[segment]],
    )
    operators = [
        OperatorSnapshot("src", "Source", "source", 2, 128, 1),
        OperatorSnapshot("cnt", "Count", "keyed_process", 2, 128, 1, in_flight=[state]),
    ]
    metadata = CheckpointMetadata(
        "count", "count", "a1", 7, "checkpoint", 1000.0, 1001.0, "0", operators
    )
    checkpoint = tmp_path / "chk-7"
    file = checkpoint / in_flight_file("cnt", state, segment)
    file.parent.mkdir(parents=True)
    (tmp_path / "written.arrow").rename(file)
    (checkpoint / "_metadata").write_bytes(encode_metadata(metadata))
    return checkpoint, file


def test_records_in_flight_are_shown_by_channel_with_their_range(
    with_records: tuple[Path, Path],
) -> None:
    checkpoint, file = with_records
    size = file.stat().st_size
    result = penstock("checkpoint", "inspect", checkpoint)
    assert result.exit_code == 0
    assert (
        "  in flight  input 2 from Source: 3 to 5 of attempt a1, 1,500 records, " in result.stdout
    )
    facts = json_of(penstock("checkpoint", "inspect", checkpoint, "--json"))
    assert (facts["files"], facts["bytes"]) == (1, size)
    assert facts["operators"][0]["in_flight"] == []
    (channel,) = facts["operators"][1]["in_flight"]
    assert (channel["producer"], channel["start"], channel["end"]) == ("src", 3, 5)
    assert (channel["micro_batches"], channel["records"], channel["bytes"]) == (1, 1500, size)


def test_damage_to_records_in_flight_is_named(with_records: tuple[Path, Path]) -> None:
    checkpoint, file = with_records
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    result = penstock("checkpoint", "inspect", checkpoint)
    assert result.exit_code == 1
    assert f"  {file}: checksum differs at byte 0" in result.stdout
    unread = penstock("checkpoint", "inspect", checkpoint, "--metadata-only")
    assert unread.exit_code == 0
    assert "1,500 records" in unread.stdout
    file.unlink()
    assert f"  {file}: it is missing" in penstock("checkpoint", "inspect", checkpoint).stdout


def with_positions(directory: Path, positions: dict[str, int], state: bytes = b"") -> Path:
    """A checkpoint of a source."""
    source = SourceState(positions, finished=False, enumerator_state=state)
    operators = [OperatorSnapshot("src", "Source", "source", 2, 128, 1, source=source)]
    metadata = CheckpointMetadata(
        "count", "count", "a1", 7, "checkpoint", 1000.0, 1001.0, "0", operators
    )
    directory.mkdir()
    (directory / "_metadata").write_bytes(encode_metadata(metadata))
    return directory


def test_positions_of_many_files_are_summarised(tmp_path: Path) -> None:
    begun = {f"/in/a-{n:03}": n + 1 for n in range(20)}
    waiting = {f"/in/b-{n:04}": 0 for n in range(1500)}
    finished = {f"/in/c-{n}": ~n for n in range(30)}
    many = with_positions(tmp_path / "chk-7", begun | waiting | finished)
    lines = penstock("checkpoint", "inspect", many).stdout.splitlines()
    summary = "  positions  1,520 splits: 1,500 not begun, 20 begun, 30 finished files"
    first = lines.index(summary)
    assert lines[first + 1] == "             /in/a-000: 1"
    assert lines[first + 9] == "             … (all with --json)"
    assert len(lines) < 25
    facts = json_of(penstock("checkpoint", "inspect", many, "--json"))
    assert len(facts["operators"][0]["positions"]) == 1550


def test_finished_files_of_a_watched_directory_are_counted(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for n in range(3):
        (tmp_path / "in" / str(n)).write_text("x")
    lines_format = StreamFormat.text_line_format()
    source = FileSource.for_record_stream_format(lines_format, tmp_path / "in").build()
    context = EnumeratorContext(1, tmp_path, lambda: 0.0, lambda: None)
    enumerator = source.enumerator(context)
    enumerator.start({})
    enumerator.plan(100)
    state = enumerator.snapshot_state()
    few = with_positions(tmp_path / "chk-7", {**enumerator.positions(), "/in/9": 4}, state)
    shown = penstock("checkpoint", "inspect", few).stdout
    assert "  positions  /in/9: 4, 3 finished files\n" in shown


def test_a_directory_that_is_not_a_snapshot_is_a_usage_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing", tmp_path / "_metadata"):
        result = penstock("checkpoint", "inspect", path)
        assert result.exit_code == 2
        assert "is not a checkpoint or savepoint" in result.stderr
