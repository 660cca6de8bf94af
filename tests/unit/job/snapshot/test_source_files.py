"""Files of a source: verified for a checkpoint, copied into a savepoint."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot, SourceState
from penstock.common.storage_url import StorageUrl
from penstock.connectors.contracts.snapshot_files import (
    SnapshotFile,
    SnapshotFiles,
    describe_file,
    verify_snapshot_files,
)
from penstock.errors import CorruptStateError
from penstock.ids import OperatorUid
from penstock.job.restore.retained_snapshots import RetainedPositions
from penstock.job.restore.snapshot_reader import Snapshot, verify_snapshot
from penstock.job.snapshot.source_files import SourceFiles

NAMES = ["log/a.arrow", "query/offsets/0", "query/state/0/0/1.delta"]


def kept_in(directory: Path) -> SourceState:
    for name in NAMES:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(f"what is in {name}")
    files = [describe_file(directory, name) for name in NAMES]
    return SourceState({"rows": 7}, False, b"memory", SnapshotFiles(str(directory), files))


def operator(source: SourceState) -> OperatorSnapshot:
    return OperatorSnapshot("clicks", "clicks", "source", 1, 1, 0, source=source)


def snapshot(path: Path, source: SourceState) -> Snapshot:
    meta = CheckpointMetadata("j", "j", "a1", 3, "savepoint", 0.0, 0.0, "0", [operator(source)])
    return Snapshot(meta, path, is_own=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_with_a_damaged_file_is_not_completed(tmp_path: Path, name: str) -> None:
    source = kept_in(tmp_path / "job" / "kept")
    path = tmp_path / "job" / "kept" / name
    path.write_text(path.read_text().upper())
    with pytest.raises(CorruptStateError, match=f"{name} cannot be used: its checksum"):
        SourceFiles(OperatorUid("clicks"), tmp_path / "job").keep(source, None)
    with pytest.raises(CorruptStateError, match=f"{name} cannot be used: its checksum"):
        SourceFiles(OperatorUid("clicks"), tmp_path / "job").keep(source, tmp_path / "savepoint")


def test_files_of_the_previous_checkpoint_are_not_verified_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = kept_in(tmp_path / "job" / "kept")
    files = SourceFiles(OperatorUid("clicks"), tmp_path / "job")
    files.keep(source, None)
    read: list[SnapshotFile] = []
    monkeypatch.setattr(
        "penstock.job.snapshot.source_files.verify_snapshot_files",
        lambda _, files: read.extend(files),
    )
    files.keep(source, None)
    assert read == []
    path = tmp_path / "job" / "kept" / NAMES[0]
    shutil.copy(path, f"{path}.new")
    Path(f"{path}.new").replace(path)
    files.keep(source, None)
    assert [file.name for file in read] == [NAMES[0]]


def test_a_checkpoint_names_files_relative_to_itself(tmp_path: Path) -> None:
    job = tmp_path / "job"
    files = SourceFiles(OperatorUid("clicks"), job)
    kept = files.keep(kept_in(job / "connectors" / "kept"), None).files
    assert kept is not None
    assert not kept.is_in_snapshot
    job.rename(tmp_path / "moved")
    verify_snapshot_files(kept.located_in(tmp_path / "moved" / "chk-3"), kept.files)
    outside = files.keep(kept_in(tmp_path / "elsewhere"), None).files
    assert outside is not None
    assert outside.located_in(job / "chk-4") == tmp_path / "elsewhere"


@pytest.mark.parametrize(
    ("directory", "place"),
    [
        ("clicks/source", "s3://bucket/job/chk-4/clicks/source"),
        ("../connectors/a1/x", "s3://bucket/job/connectors/a1/x"),
        ("s3://other/job/x", "s3://other/job/x"),
        ("/var/job/x", "/var/job/x"),
    ],
)
def test_files_are_found_from_where_the_snapshot_is_in_a_store(directory: str, place: str) -> None:
    files = SnapshotFiles(directory, [])
    assert str(files.located_in(StorageUrl("s3", "bucket", ("job", "chk-4")))) == place
    assert files.is_in_snapshot == (directory == "clicks/source")


def test_a_savepoint_has_files_of_its_own_and_may_be_moved(tmp_path: Path) -> None:
    source = kept_in(tmp_path / "job" / "kept")
    files = SourceFiles(OperatorUid("clicks"), tmp_path / "job")
    saved = files.keep(source, tmp_path / "savepoint")
    assert saved.files is not None
    assert saved.files.is_in_snapshot
    shutil.rmtree(tmp_path / "job")
    moved = (tmp_path / "savepoint").rename(tmp_path / "moved")
    verify_snapshot(snapshot(moved, saved))
    damaged = moved / saved.files.directory / NAMES[1]
    damaged.write_text("something else")
    with pytest.raises(CorruptStateError, match=str(damaged)):
        verify_snapshot(snapshot(moved, saved))
    damaged.unlink()
    with pytest.raises(CorruptStateError, match="it is missing"):
        verify_snapshot(snapshot(moved, saved))


def test_a_savepoint_with_files_of_its_own_lets_the_source_release_records(tmp_path: Path) -> None:
    source = kept_in(tmp_path / "job" / "kept")
    saved = SourceFiles(OperatorUid("clicks"), tmp_path / "job").keep(
        source, tmp_path / "savepoint"
    )
    positions = RetainedPositions()
    positions.keep(1, [operator(saved)])
    assert positions.lowest("clicks") == {}
    positions.keep(2, [operator(SourceState({"rows": 20}, False))])
    assert positions.lowest("clicks") == {"rows": 20}
