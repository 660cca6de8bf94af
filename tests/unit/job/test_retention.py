"""Whose snapshots are, which of them stay when a job has ended, and what restoring them needs."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from penstock.checkpoint.storage.journal_entries import JobEnded
from penstock.checkpoint.storage.metadata import JOB_INSTANCE, files_of
from penstock.checkpoint.storage.metadata_serializer import decode_metadata, encode_metadata
from penstock.common.job_status import JobStatus
from penstock.crash_points import CrashPoint, arm, disarm
from penstock.errors import CheckpointFailedError, CommitFailedError
from penstock.ids import CheckpointId
from penstock.job.job_store import JobStore
from penstock.savepoint.directory import dispose
from penstock.testing import compare
from tests.local_paths import local
from tests.unit.job.counting import (
    Program,
    bursts,
    checkpoint,
    counted,
    die,
    flip_a_byte,
    idle_after,
    launched,
    wait_for_lines,
    wait_for_records,
)
from tests.unit.support import eventually

RETAIN = {
    "execution__checkpointing__externalized_checkpoint_retention": "RETAIN_ON_CANCELLATION",
}


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    disarm()
    for job in launched:
        job.kill()
    launched.clear()


def canceled(root: Path, **settings: str) -> tuple[Program, Path]:
    """A job that was canceled after fifty records, and the path of its newest checkpoint."""
    program = Program(root, idle_after(50), settings=settings)
    job = program.launch()
    wait_for_lines(program, 50)
    job.cancel()
    assert job.wait_for_end(20)
    (newest,) = program.dir.checkpoints_on_disk() or [CheckpointId(0)]
    return program, local(program.dir.checkpoint_dir(newest))


def started_from(root: Path, path: Path, **settings: str) -> Program:
    given = {"execution__state_recovery__path": str(path), **settings}
    return Program(root, bursts(100), output="again", settings=given)


def is_whole(program: Program, path: Path) -> bool:
    """Whether a checkpoint is there with all of its state files."""
    metadata = path / "_metadata"
    if not metadata.exists():
        return False
    files = files_of(decode_metadata(metadata.read_bytes(), str(metadata)))
    assert files
    return all(local(program.dir.shared / name).exists() for name in files)


# -- retained checkpoints -----------------------------------------------------------------------


def test_a_job_restored_from_a_retained_checkpoint_leaves_it_to_the_user(tmp_path: Path) -> None:
    first, path = canceled(tmp_path, **RETAIN)
    for output in ("again", "once-more"):
        second = started_from(tmp_path, path)
        second.output = output
        second.run()
        assert compare(counted(100)[50:], second.lines()).is_exactly_once
        assert is_whole(first, path)


def test_a_start_from_scratch_leaves_a_retained_checkpoint(tmp_path: Path) -> None:
    first, path = canceled(tmp_path, **RETAIN)
    second = Program(tmp_path, bursts(30), output="again")
    second.run()
    assert second.verdict(30).is_exactly_once
    assert is_whole(first, path)


def test_a_claimed_checkpoint_is_deleted_only_when_the_job_has_its_own(tmp_path: Path) -> None:
    first, path = canceled(tmp_path, **RETAIN)
    second = started_from(tmp_path, path, execution__state_recovery__claim_mode="CLAIM")
    second.script, second.interval = idle_after(100), "1 h"
    job = second.launch()
    wait_for_records(job, 50)
    assert is_whole(first, path)
    checkpoint(job)
    assert not path.exists()
    job.cancel()
    assert job.wait_for_end(20)


def test_checkpoints_that_a_canceled_job_does_not_retain_are_deleted(tmp_path: Path) -> None:
    first, path = canceled(tmp_path)
    assert path.name == "chk-0"
    assert first.journal().completed == ()


CLAIM = {"execution__state_recovery__claim_mode": "CLAIM"}


def dies_before_it_deletes_the_claimed(
    root: Path, path: Path, *, completes: bool, options: dict[str, str]
) -> Program:
    """A job that claims a snapshot and dies before or right after its first own checkpoint."""
    given = {**options, "restart_strategy__type": "none"}
    program = started_from(root, path, **given)
    program.script, program.interval = idle_after(100), "1 h"
    job = program.launch()
    wait_for_records(job, 50)
    if completes:
        arm(CrashPoint.COORDINATOR_COMPLETED, action=full_disk)
        job.trigger_checkpoint()
        assert job.wait_for_end(20)
        assert program.journal().restorable
    else:
        die(job)
    return program


def full_disk() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("completes", [True, False])
@pytest.mark.parametrize("kind", ["savepoint", "checkpoint"])
def test_a_claimed_snapshot_is_deleted_by_the_driver_that_follows_the_one_that_claimed_it(
    tmp_path: Path, kind: str, completes: bool
) -> None:
    path = stopped(tmp_path)[1] if kind == "savepoint" else canceled(tmp_path, **RETAIN)[1]
    dies_before_it_deletes_the_claimed(tmp_path, path, completes=completes, options=CLAIM)
    assert (path / "_metadata").exists()
    again = Program(tmp_path, bursts(100), output="again")
    again.run()
    assert compare(counted(100)[50:], again.lines()).is_exactly_once
    assert not path.exists()
    assert again.dir.checkpoints_on_disk() == []


def test_another_snapshot_in_the_place_of_a_claimed_one_is_not_deleted(tmp_path: Path) -> None:
    _, path = stopped(tmp_path)
    dies_before_it_deletes_the_claimed(tmp_path, path, completes=True, options=CLAIM)
    shutil.rmtree(path)
    (tmp_path / "other").mkdir()
    stopped(tmp_path / "other")[1].rename(path)
    Program(tmp_path, bursts(100), output="again").run()
    assert (path / "_metadata").exists()


def test_a_snapshot_that_is_named_again_without_a_claim_is_not_deleted(tmp_path: Path) -> None:
    _, path = stopped(tmp_path)
    dies_before_it_deletes_the_claimed(tmp_path, path, completes=False, options=CLAIM)
    started_from(tmp_path, path).run()
    assert (path / "_metadata").exists()


def test_a_checkpoint_that_the_job_fell_back_from_is_deleted_with_its_next_one(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path, idle_after(50), interval="1 h")
    program.settings["execution__checkpointing__num_retained"] = "2"
    # Exactly once, the job would not fall back if the newest one's commits have started.
    program.settings["execution__checkpointing__mode"] = "AT_LEAST_ONCE"
    job = program.launch()
    wait_for_records(job, 50)
    older, newest = checkpoint(job), checkpoint(job)
    die(job)
    flip_a_byte(local(program.dir.metadata(newest)))
    job = program.launch()
    assert program.dir.checkpoints_on_disk() == [older, newest]
    following = checkpoint(job)
    eventually(lambda: program.dir.checkpoints_on_disk() == [older, following])
    die(job)
    assert [c.checkpoint for c in program.journal().completed] == [older, following]


def without_tidy(patch: pytest.MonkeyPatch, root: Path) -> tuple[Program, Path]:
    """A canceled job whose driver was killed before it deleted the checkpoints."""
    with patch.context() as patched:
        patched.setattr(JobStore, "tidy", lambda *_: None)
        return canceled(root)


def test_the_next_start_deletes_what_a_killed_driver_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The new run retains, but the one that ended did not.
    _, path = without_tidy(monkeypatch, tmp_path)
    assert path.exists()
    Program(tmp_path, bursts(30), output="again", settings=dict(RETAIN)).run()
    assert not path.exists()


def test_what_is_being_restored_is_not_cleaned_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, path = without_tidy(monkeypatch, tmp_path)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "checkpoints")
    second = started_from(tmp_path, link / path.relative_to(tmp_path / "checkpoints"))
    second.run()
    assert compare(counted(100)[50:], second.lines()).is_exactly_once
    assert is_whole(first, path)


def test_a_checkpoint_that_was_discarded_but_not_deleted_can_be_restored(tmp_path: Path) -> None:
    first = Program(tmp_path, idle_after(50))
    job = first.launch()
    wait_for_lines(first, 50)
    die(job)
    path = first.dir.checkpoint_dir(first.journal().restorable[-1].checkpoint)
    # As a driver leaves it that dies after it has written the metadata: the journal lacks it.
    orphan = local(path).rename(local(path).with_name("chk-9000"))
    data = (orphan / "_metadata").read_bytes()
    renamed = msgspec.structs.replace(decode_metadata(data, ""), checkpoint=9000)
    (orphan / "_metadata").write_bytes(encode_metadata(renamed))
    second = started_from(tmp_path, orphan)
    second.script, second.interval = idle_after(100), "1 h"
    job = second.launch()
    wait_for_records(job, 50)
    checkpoint(job)
    die(job)
    second.script = bursts(100)
    second.run()
    assert compare(counted(100)[50:], second.lines()).is_exactly_once
    assert is_whole(first, orphan)


def test_the_end_of_an_older_version_deletes_nothing_that_it_may_have_retained() -> None:
    def retains(status: JobStatus, retained: bool | None = None) -> bool:
        return JobEnded.of("a1", status, 1.0, retained=retained).retains_checkpoints

    assert [retains(s) for s in (JobStatus.CANCELED, JobStatus.FAILED)] == [True, True]
    assert not retains(JobStatus.FINISHED)
    assert not JobEnded.of("a1", JobStatus.FINISHED, 1.0, "/sp").retains_checkpoints
    assert [retains(JobStatus.CANCELED, r) for r in (True, False)] == [True, False]


# -- other jobs with the same id ----------------------------------------------------------------


def savepoint_of(program: Program) -> Path:
    job = program.launch()
    wait_for_lines(program, 20)
    path = Path(job.savepoint(str(program.root / "savepoints")).result(20))
    die(job)
    return path


def forget_instance(path: Path) -> None:
    """Make a savepoint look as older versions wrote it."""
    file = path / "_metadata"
    metadata = decode_metadata(file.read_bytes(), "")
    properties = {k: v for k, v in metadata.properties.items() if k != JOB_INSTANCE}
    old = encode_metadata(msgspec.structs.replace(metadata, properties=properties))
    file.write_bytes(old)
    copy = Path(properties["job-directory"]) / "savepoints" / f"{metadata.checkpoint}.metadata"
    copy.write_bytes(old)


@pytest.mark.parametrize("is_old", [False, True])
def test_a_savepoint_of_another_job_with_the_same_id_starts_a_lineage(
    tmp_path: Path, is_old: bool
) -> None:
    path = savepoint_of(Program(tmp_path, idle_after(30)))
    if is_old:
        forget_instance(path)
    other = Program(tmp_path, idle_after(30), directory="others", output="others-out")
    job = other.launch()
    wait_for_lines(other, 20)
    die(job)
    other.settings["execution__state_recovery__path"] = str(path)
    other.script = bursts(100)
    other.run()
    assert [(a.attempt, a.lineage) for a in other.journal().attempts] == [
        ("a1", "a1"),
        ("a2", "a2"),
    ]


@pytest.mark.parametrize("is_old", [False, True])
def test_a_moved_savepoint_of_the_job_itself_continues_its_lineage(
    tmp_path: Path, is_old: bool
) -> None:
    program = Program(tmp_path, idle_after(30))
    path = savepoint_of(program)
    if is_old:
        forget_instance(path)
    moved = path.rename(tmp_path / "moved")
    program.settings["execution__state_recovery__path"] = str(moved)
    program.script = bursts(100)
    program.run()
    assert [a.lineage for a in program.journal().attempts] == ["a1", "a1"]


# -- output that was consumed before its snapshot is restored -----------------------------------


def stopped(root: Path) -> tuple[Program, Path]:
    program = Program(root, idle_after(50), interval="1 h")
    job = program.launch()
    wait_for_records(job, 50)
    path = Path(job.stop(str(root / "savepoints"), drain=False).result(20))
    assert job.wait_for_end(20)
    return program, path


def consume(program: Program) -> None:
    """Take the output away, as a consumer of the files does."""
    assert program.verdict(50).is_exactly_once
    shutil.rmtree(program.root / program.output)


def resumes_after_fifty(root: Path, path: Path) -> None:
    program = started_from(root, path)
    program.run()
    assert compare(counted(100)[50:], program.lines()).is_exactly_once


@pytest.mark.parametrize("knows", ["marker and journal", "marker", "journal"])
def test_a_stop_whose_output_was_consumed_is_restored(tmp_path: Path, knows: str) -> None:
    program, path = stopped(tmp_path)
    consume(program)
    if knows == "marker":
        path = path.rename(tmp_path / "moved")
        shutil.rmtree(tmp_path / "checkpoints")
    if knows == "journal":
        # As a driver leaves it that is killed after the journal entry.
        (path / "_committed").unlink()
    resumes_after_fifty(tmp_path, path)


def test_another_job_restores_a_stop_whose_output_was_consumed(tmp_path: Path) -> None:
    program, path = stopped(tmp_path)
    consume(program)
    (path / "_committed").unlink()
    other = started_from(tmp_path, path)
    other.directory = "others"
    other.run()
    assert compare(counted(100)[50:], other.lines()).is_exactly_once


def test_a_stop_that_is_committed_by_the_next_driver_is_marked_by_it(tmp_path: Path) -> None:
    program = Program(tmp_path, idle_after(50), interval="1 h")
    program.settings["restart_strategy__type"] = "none"
    job = program.launch()
    wait_for_records(job, 50)
    arm(CrashPoint.SINK_COMMITTED, action=full_disk)
    with pytest.raises(CheckpointFailedError):
        job.stop(str(tmp_path / "savepoints"), drain=False).result(20)
    assert job.wait_for_end(20)
    (path,) = (tmp_path / "savepoints").iterdir()
    assert not (path / "_committed").exists()
    die(program.launch())
    assert (path / "_committed").exists()
    assert program.verdict(50).is_exactly_once


@pytest.mark.parametrize("marker", [None, b"", b"00000000\n"])
def test_a_marker_of_another_savepoint_does_not_count(tmp_path: Path, marker: bytes | None) -> None:
    program, path = stopped(tmp_path)
    consume(program)
    shutil.rmtree(tmp_path / "checkpoints")
    (path / "_committed").unlink()
    if marker is not None:
        (path / "_committed").write_bytes(marker)
    with pytest.raises(CommitFailedError, match="LostPendingFileError"):
        started_from(tmp_path, path).run()


def test_a_savepoint_without_commits_has_no_marker_and_is_committed_by_its_restore(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path, idle_after(50), interval="1 h")
    job = program.launch()
    wait_for_records(job, 50)
    path = Path(job.savepoint(str(tmp_path / "savepoints")).result(20))
    die(job)
    assert not (path / "_committed").exists()
    assert program.lines() == []
    resumes_after_fifty(tmp_path, path)
    assert program.verdict(50).is_exactly_once


def test_a_savepoint_is_restored_after_output_that_a_later_checkpoint_committed_was_consumed(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path, idle_after(50), interval="1 h")
    job = program.launch()
    wait_for_records(job, 50)
    path = Path(job.savepoint(str(tmp_path / "savepoints")).result(20))
    checkpoint(job)
    wait_for_lines(program, 50)
    die(job)
    consume(program)
    resumes_after_fifty(tmp_path, path)


def test_a_retained_checkpoint_whose_output_was_consumed_is_restored(tmp_path: Path) -> None:
    program, path = canceled(tmp_path, **RETAIN)
    consume(program)
    resumes_after_fifty(tmp_path, path)


def test_a_job_that_died_after_committing_what_it_restored_does_not_commit_it_again(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path, idle_after(50), interval="1 h")
    job = program.launch()
    wait_for_records(job, 50)
    path = Path(job.savepoint(str(tmp_path / "savepoints")).result(20))
    die(job)
    restored = started_from(tmp_path, path)
    restored.script, restored.interval = idle_after(50), "1 h"
    die(restored.launch())
    consume(program)
    restored.script = bursts(100)
    restored.run()
    assert compare(counted(100)[50:], restored.lines()).is_exactly_once


def test_a_disposed_savepoint_leaves_no_marker(tmp_path: Path) -> None:
    _, path = stopped(tmp_path)
    assert (path / "_committed").exists()
    dispose(path)
    assert not path.exists()
