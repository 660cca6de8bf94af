"""Savepoints, in-flight data and files of sources in a real S3 server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import msgspec
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from penstock.channel.columns import RecordLayout
from penstock.channel.segment import Segment, SegmentWriter
from penstock.checkpoint.barriers.channel_state_files import (
    SegmentCopy,
    copy_from_checkpoint,
    copy_into_checkpoint,
    in_flight_checks,
    read_in_flight,
)
from penstock.checkpoint.storage.committed_marker import mark_committed, recorded_as_committed
from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.metadata import (
    JOB_DIRECTORY,
    ChannelState,
    CheckpointMetadata,
    OperatorSnapshot,
    SourceState,
    in_flight_file,
)
from penstock.checkpoint.storage.metadata_serializer import encode_metadata
from penstock.cli.main import main
from penstock.common import Types
from penstock.common.storage_url import StorageUrl
from penstock.connectors.contracts.snapshot_files import (
    SnapshotFiles,
    describe_file,
    fetch_snapshot_files,
    verify_snapshot_files,
)
from penstock.errors import CorruptSegmentError, CorruptStateError, NotASavepointError
from penstock.ids import JobKey, OperatorUid
from penstock.job.snapshot.source_files import SourceFiles
from penstock.recovery.restore_candidates import discard_claimed
from penstock.savepoint import part_files
from penstock.savepoint.directory import dispose, read_savepoint_metadata
from penstock.savepoint.layout import SavedOperator
from penstock.savepoint.read import entries_of, verify_files
from penstock.savepoint.write import finalize_files, write_subtask
from penstock.state.backends.refs import FileRef, StateRef, StoredAt
from penstock.state.key_groups import key_group_range
from penstock.state.registry.meta_info import StateMetaInfo
from penstock.storage.contract import Storage
from penstock.storage.storages import storage_at
from penstock.testing.servers.s3_server import S3Server
from tests.servers.faulty_s3 import FaultyS3
from tests.unit.savepoint.saved_states import (
    ALL,
    MAX_PARALLELISM,
    registered,
    save,
    state_entries,
    within,
)

pytestmark = pytest.mark.s3

BUCKET = "snapshots"
LISTING = "GET list-type,prefix"
ENTRIES = [
    registered("m", StateMetaInfo(2, "value state", "STRING")),
    registered("n", StateMetaInfo(1, "value state", "LONG")),
    *state_entries(1, "value state", Types.LONG(), Types.LONG(), ((n, n) for n in range(999))),
    *state_entries(2, "value state", Types.STRING(), Types.LONG(), ((n, "x") for n in range(99))),
]


@pytest.fixture
def place(s3: S3Server, request: pytest.FixtureRequest) -> StorageUrl:
    """An empty place in a bucket."""
    s3.create_bucket(BUCKET)
    return s3.url(BUCKET, request.node.name)


def on_disk(s3: S3Server, url: StorageUrl) -> Path:
    """Return where the server has an object."""
    return s3.buckets / url.authority / url.path


def paths_in(url: StorageUrl) -> list[str]:
    return storage_at(url).list("")


def flip(s3: S3Server, url: StorageUrl) -> None:
    """Change one byte of an object without asking the server."""
    path = on_disk(s3, url)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    with path.open("r+b") as file:
        file.write(data)


def metadata_of(operators: list[OperatorSnapshot], **properties: str) -> CheckpointMetadata:
    return CheckpointMetadata(
        job_id="count-1a2b",
        job_name="count",
        attempt="a1",
        checkpoint=7,
        kind="savepoint",
        triggered=1.0,
        completed=2.0,
        penstock_version="0.1.0",
        operators=operators,
        properties=properties,
    )


def keyed(savepoint: StorageUrl, uid: str, parallelism: int = 3) -> OperatorSnapshot:
    files = save(savepoint, ENTRIES, Types.LONG(), parallelism, uid)
    return OperatorSnapshot(
        uid, uid, "keyed process", parallelism, 128, 9, key_type="LONG", savepoint=files
    )


@pytest.fixture
def savepoint(place: StorageUrl) -> StorageUrl:
    target = place / "savepoint-7"
    uids = ("count", "a/path: häufig")
    meta = metadata_of([keyed(target, uid) for uid in uids])
    storage_at(target).create("_metadata", encode_metadata(meta))
    return target


def moved(s3: S3Server, url: StorageUrl) -> StorageUrl:
    """Copy all objects to another prefix and delete them here, as users do."""
    target = url.parent / "elsewhere" / url.name
    storage, to = storage_at(url), storage_at(target)
    for path in storage.list(""):
        to.create(path, storage.read(path))
        storage.delete(path)
    return target


# -- savepoints ---------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [1, 2, 5])
def test_a_moved_savepoint_is_restored_at_any_parallelism(
    s3: S3Server, savepoint: StorageUrl, after: int, tmp_path: Path
) -> None:
    there = moved(s3, savepoint)
    assert paths_in(savepoint) == []
    scratch = tmp_path / "host" / "attempt"
    for operator in read_savepoint_metadata(there / "_metadata").operators:
        for subtask in range(after):
            mine = key_group_range(MAX_PARALLELISM, after, subtask)
            found = list(entries_of(there, operator.savepoint, mine, scratch=scratch))
            assert found == within(ENTRIES, mine)
    assert list(scratch.iterdir()) == []


def test_the_files_of_other_task_attempts_are_deleted(place: StorageUrl, tmp_path: Path) -> None:
    operator = SavedOperator("count", "LONG", MAX_PARALLELISM)
    won = write_subtask(iter(ENTRIES), operator, place, 0, "a1-b3-t0-s0-a1", scratch=tmp_path)
    write_subtask(iter(ENTRIES), operator, place, 0, "a1-b3-t0-s0-a2", scratch=tmp_path)
    storage_at(place).create("count/source/offsets", b"of a source")
    storage_at(place).create("count/n/notes.txt", b"of the user")
    assert len(paths_in(place)) == 6
    for _ in range(2):  # a driver that died may do it again
        assert finalize_files(place, won) == won
        assert paths_in(place) == [
            "count/m/part-0-a1-b3-t0-s0-a1.parquet",
            "count/n/notes.txt",
            "count/n/part-0-a1-b3-t0-s0-a1.parquet",
            "count/source/offsets",
        ]
    verify_files(place, won)
    assert list(tmp_path.iterdir()) == []


def test_a_savepoint_without_a_file_that_a_task_has_put_there_is_not_completed(
    place: StorageUrl,
) -> None:
    operator = SavedOperator("count", "LONG", MAX_PARALLELISM)
    files = write_subtask(iter(ENTRIES), operator, place, 0, "a1")
    storage_at(place).delete(files[0].path)
    with pytest.raises(CorruptStateError, match="it is missing"):
        finalize_files(place, files)


def test_a_task_whose_file_does_not_read_back_leaves_nothing(
    place: StorageUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(path: Path) -> Iterator[bytes]:
        data = bytearray(path.read_bytes())
        data[9] ^= 1
        yield bytes(data)

    monkeypatch.setattr(part_files, "pieces_of", damaged)
    operator = SavedOperator("count", "LONG", MAX_PARALLELISM)
    with pytest.raises(CorruptStateError, match="its checksum is"):
        write_subtask(iter(ENTRIES), operator, place, 0, "a1", scratch=tmp_path)
    assert paths_in(place) == []
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_driver_left_is_no_savepoint_and_can_be_written_again(
    place: StorageUrl,
) -> None:
    keyed(place, "count")
    with pytest.raises(NotASavepointError, match="it has no _metadata"):
        read_savepoint_metadata(place)
    operator = SavedOperator("count", "LONG", MAX_PARALLELISM)
    files = write_subtask(iter(ENTRIES), operator, place, 0, "a2")
    assert finalize_files(place, files) == files
    assert list(entries_of(place, files, ALL)) == ENTRIES
    assert paths_in(place) == sorted(file.path for file in files)


def test_a_damaged_file_is_named_and_its_copy_removed(
    s3: S3Server, savepoint: StorageUrl, tmp_path: Path
) -> None:
    files = read_savepoint_metadata(savepoint).operators[0].savepoint
    flip(s3, savepoint / files[1].path)
    with pytest.raises(CorruptStateError, match="its checksum is") as error:
        list(entries_of(savepoint, files, ALL, scratch=tmp_path))
    assert error.value.path == f"{savepoint}/{files[1].path}"
    with pytest.raises(CorruptStateError, match="its checksum is"):
        verify_files(savepoint, files)
    storage_at(savepoint).delete(files[1].path)
    with pytest.raises(CorruptStateError, match="it is missing"):
        list(entries_of(savepoint, files, ALL, scratch=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_stops_early_leaves_no_copy(savepoint: StorageUrl, tmp_path: Path) -> None:
    files = read_savepoint_metadata(savepoint).operators[0].savepoint
    entries = iter(entries_of(savepoint, files, ALL, scratch=tmp_path))
    for _ in range(5):
        next(entries)
    assert list(tmp_path.iterdir())
    del entries
    assert not list(tmp_path.iterdir())


# -- disposal -----------------------------------------------------------------------------------


def test_only_the_savepoint_is_deleted(savepoint: StorageUrl, place: StorageUrl) -> None:
    storage_at(savepoint).create("notes.txt", b"of the user")
    storage_at(place).create("savepoint-77/_metadata", b"another one, with a longer name")
    mark_committed(savepoint, 1)
    dispose(savepoint / "_metadata")
    assert paths_in(place) == ["savepoint-7/notes.txt", "savepoint-77/_metadata"]
    with pytest.raises(NotASavepointError, match="it has no _metadata"):
        dispose(savepoint)


def test_an_interrupted_disposal_is_completed_by_the_next_one(
    place: StorageUrl, savepoint: StorageUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = type(storage_at(savepoint)).delete

    def killed(self: Storage, path: str) -> None:
        if path == "_metadata":
            raise KeyboardInterrupt
        delete(self, path)

    with monkeypatch.context() as patched:
        patched.setattr(type(storage_at(savepoint)), "delete", killed)
        with pytest.raises(KeyboardInterrupt):
            dispose(savepoint)
    assert paths_in(place) == ["savepoint-7/_metadata"]
    operator = read_savepoint_metadata(savepoint).operators[0]
    with pytest.raises(CorruptStateError, match="it is missing"):
        list(entries_of(savepoint, operator.savepoint, ALL))
    dispose(savepoint)
    assert paths_in(place) == []


def test_a_savepoint_takes_few_requests(s3: S3Server, place: StorageUrl) -> None:
    with FaultyS3(s3.port) as proxy:
        url = s3.url(BUCKET, place.path, endpoint=proxy.endpoint)
        operator = keyed(url, "count")
        # For each file a write and a read; then a listing.
        assert sorted(proxy.counted()) == sorted([*["PUT", "GET"] * 6, LISTING])
        storage_at(url).create("_metadata", encode_metadata(metadata_of([operator])))
        proxy.counted()
        assert list(entries_of(url, operator.savepoint, ALL)) == ENTRIES
        assert proxy.counted() == ["GET"] * 6
        dispose(url)
        # The metadata, what is there, the files of an operator, and their deletion; metadata last.
        names = "GET delimiter,list-type,prefix"
        assert proxy.counted() == ["GET", names, LISTING, "POST delete", "POST delete"]


@pytest.mark.parametrize("in_store", [True, False])
def test_the_job_no_longer_keeps_what_a_deleted_savepoint_needs(
    place: StorageUrl, tmp_path: Path, in_store: bool
) -> None:
    job = JobDir(place if in_store else tmp_path, JobKey("count-1a2b"))
    data = encode_metadata(metadata_of([], **{JOB_DIRECTORY: str(job.path)}))
    other = encode_metadata(metadata_of([]))
    for content in (data, other):
        storage_at(place / "saved").replace("_metadata", data)
        job.storage.replace(job.savepoint_copy(7), content)
        dispose(place / "saved")
        assert job.storage.exists(job.savepoint_copy(7)) == (content == other)


def a_checkpoint(*objects: str) -> CheckpointMetadata:
    """Return the metadata of a checkpoint with state in these objects."""
    files = (FileRef(f"{name}-0", 3, 5, 0, StoredAt(name)) for name in objects)
    operator = OperatorSnapshot(
        "count", "count", "keyed process", 1, 128, 3, keyed=[StateRef(3, deltas=tuple(files))]
    )
    return msgspec.structs.replace(metadata_of([operator]), kind="checkpoint")


def test_a_claimed_checkpoint_is_deleted_with_what_only_it_needs(place: StorageUrl) -> None:
    job = JobDir(place, JobKey("count-1a2b"))
    meta = a_checkpoint("mine.bundle", "both.bundle")
    job.storage.create("chk-7/_metadata", encode_metadata(meta))
    job.storage.create("chk-7/in-flight/count/src-0-0.segments", b"x")
    job.storage.create("chk-77/_metadata", encode_metadata(a_checkpoint("both.bundle")))
    for name in ("mine", "both", "other"):
        job.storage.create(f"shared/count/0/{name}.bundle", b"state")
    for _ in range(2):
        discard_claimed(job.path / "chk-7", meta)
        assert job.storage.list("") == [
            "chk-77/_metadata",
            "shared/count/0/both.bundle",
            "shared/count/0/other.bundle",
        ]


def test_a_marker_beside_the_savepoint_tells_that_its_output_is_committed(
    place: StorageUrl, savepoint: StorageUrl, tmp_path: Path
) -> None:
    job = JobDir(tmp_path, JobKey("new"))
    meta = read_savepoint_metadata(savepoint)
    assert recorded_as_committed(job, savepoint, meta, 5).upto == 0
    mark_committed(savepoint, 5)
    assert recorded_as_committed(job, savepoint, meta, 5).upto == meta.checkpoint
    assert recorded_as_committed(job, savepoint, meta, 6).upto == 0
    mark_committed(place / "deleted", 5)
    assert paths_in(place / "deleted") == []


# -- inspection ---------------------------------------------------------------------------------


def inspected(s3: S3Server, url: StorageUrl) -> Result:
    settings = [f"-Dpenstock.storage.{key}={value}" for key, value in s3.options().items()]
    return CliRunner().invoke(main, ["checkpoint", "inspect", str(url), *settings])


def test_inspect_reads_a_savepoint_and_names_a_flipped_byte(
    s3: S3Server, savepoint: StorageUrl
) -> None:
    result = inspected(s3, savepoint)
    assert result.exit_code == 0, result.output
    assert "12 files" in result.output
    damaged = savepoint / read_savepoint_metadata(savepoint).operators[1].savepoint[2].path
    flip(s3, damaged)
    result = inspected(s3, savepoint)
    assert result.exit_code == 1
    assert f"{damaged}: its checksum is" in result.output


def test_inspect_says_that_there_is_no_snapshot(s3: S3Server, place: StorageUrl) -> None:
    result = inspected(s3, place / "chk-9")
    assert result.exit_code == 2
    assert f"{place}/chk-9 is not a checkpoint or savepoint: it has no _metadata" in result.output


# -- in-flight data -----------------------------------------------------------------------------


def segments_in(directory: Path, count: int) -> list[Segment]:
    directory.mkdir(parents=True)
    written = []
    for number in range(count):
        writer = SegmentWriter(directory / f"a1-b{number}.arrow", 2)
        for consumer in range(2):
            writer.write(consumer, (RecordLayout.SCALAR, [pa.array(range(number * 9 + 1))]))
        segment = writer.finish()
        assert segment is not None
        written.append(segment)
    return written


@pytest.fixture
def channels(tmp_path: Path) -> list[ChannelState]:
    """Two channels of one operator, and one without records."""
    states = []
    for number, count in enumerate([7, 3, 0]):
        found = segments_in(tmp_path / "channels" / str(number), count)
        entries = [found[:2], *([segment] for segment in found[2:])] if found else []
        states.append(ChannelState("src", number, 0, "hash", 2, "LONG", "a1", 0, 9, entries))
    return states


def copied(channels: list[ChannelState], checkpoint: StorageUrl, local: Path) -> list[SegmentCopy]:
    """Return the copies of all segments into a checkpoint."""
    return [
        SegmentCopy(
            segment,
            local / str(number) / segment.name,
            checkpoint / in_flight_file("count", state, segment),
        )
        for number, state in enumerate(channels)
        for entry in state.entries
        for segment in entry
    ]


def test_in_flight_data_comes_back_as_it_was(
    place: StorageUrl, channels: list[ChannelState], tmp_path: Path
) -> None:
    chk = place / "chk-3"
    copies = copied(channels, chk, tmp_path / "channels")
    copy_into_checkpoint(copies)
    assert paths_in(chk) == [
        "in-flight/count/src-0-0.segments",
        "in-flight/count/src-1-0.segments",
    ]
    for check in in_flight_checks(chk, "count", channels):
        check()
    restored = [tmp_path / "restored" / c.target.parent.name / c.segment.name for c in copies]
    copy_from_checkpoint(
        SegmentCopy(copy.segment, copy.target, path)
        for copy, path in zip(copies, restored, strict=True)
    )
    for copy, path in zip(copies, restored, strict=True):
        assert isinstance(copy.source, Path)
        assert path.read_bytes() == copy.source.read_bytes()
    assert [segment for segment, _ in read_in_flight(chk, "count", channels[0])] == [
        segment for entry in channels[0].entries for segment in entry
    ]


def test_damaged_in_flight_data_is_neither_stored_nor_restored(
    s3: S3Server, place: StorageUrl, channels: list[ChannelState], tmp_path: Path
) -> None:
    chk = place / "chk-3"
    copies = copied(channels, chk, tmp_path / "channels")
    copy_into_checkpoint(copies)
    objects = [chk / path for path in paths_in(chk)]
    flip(s3, objects[0])
    with on_disk(s3, objects[1]).open("r+b") as file:
        file.truncate(file.seek(0, os.SEEK_END) - 1)
    errors = []
    for check in in_flight_checks(chk, "count", channels):
        with pytest.raises(CorruptStateError) as error:
            check()
        errors.append(str(error.value))
    assert f"{objects[0]} cannot be used: checksum differs at byte" in errors[0]
    assert f"{objects[1]} cannot be used: it has" in errors[1]
    with pytest.raises(CorruptStateError):
        copy_from_checkpoint(
            SegmentCopy(c.segment, c.target, tmp_path / "restored" / str(n))
            for n, c in enumerate(copies)
        )
    assert isinstance(copies[-1].source, Path)
    copies[-1].source.write_bytes(b"not what the producer wrote")
    with pytest.raises(CorruptSegmentError):
        copy_into_checkpoint(copied(channels, place / "chk-4", tmp_path / "channels"))
    assert "in-flight/count/src-1-0.segments" not in paths_in(place / "chk-4")


# -- files of a source --------------------------------------------------------------------------

NAMES = ["log/a.arrow", "query/offsets/0", "query/state/0/0/1.delta"]


def kept_in(directory: Path) -> SourceState:
    for name in NAMES:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(f"what is in {name}")
    files = [describe_file(directory, name) for name in NAMES]
    return SourceState({"rows": 7}, False, b"memory", SnapshotFiles(str(directory), files))


@pytest.mark.parametrize("is_savepoint", [True, False])
def test_files_of_a_source_are_in_the_snapshot(
    s3: S3Server, place: StorageUrl, tmp_path: Path, is_savepoint: bool
) -> None:
    files = SourceFiles(OperatorUid("clicks"), place / "job")
    snapshot = place / "saved" if is_savepoint else place / "job" / "chk-3"
    source = kept_in(tmp_path / "kept")
    kept = files.keep(source, snapshot if is_savepoint else None, place / "job" / "chk-3").files
    assert kept is not None
    # The source of a running job may release the records that checkpoints no longer need.
    assert kept.is_in_snapshot == is_savepoint
    assert paths_in(snapshot) == [f"clicks/source/{name}" for name in NAMES]
    shutil.rmtree(tmp_path / "kept")
    there = moved(s3, place / "saved" if is_savepoint else place / "job")
    directory = kept.located_in(there if is_savepoint else there / "chk-3")
    assert isinstance(directory, StorageUrl)
    verify_snapshot_files(directory, kept.files)
    fetch_snapshot_files(directory, kept.files, tmp_path / "restored")
    verify_snapshot_files(tmp_path / "restored", kept.files)
    flip(s3, directory / NAMES[1])
    with pytest.raises(CorruptStateError, match=f"{NAMES[1]} cannot be used: its checksum"):
        fetch_snapshot_files(directory, kept.files, tmp_path / "again")
    assert not (tmp_path / "again" / NAMES[1]).exists()


def test_a_damaged_file_of_a_source_is_not_stored(place: StorageUrl, tmp_path: Path) -> None:
    source = kept_in(tmp_path / "kept")
    (tmp_path / "kept" / NAMES[0]).write_text("what is in log/b.arrow")
    files = SourceFiles(OperatorUid("clicks"), place / "job")
    with pytest.raises(CorruptStateError, match=f"{NAMES[0]} cannot be used: its checksum"):
        files.keep(source, place / "saved")
    assert f"clicks/source/{NAMES[0]}" not in paths_in(place / "saved")
    assert crc32(b"what is in log/a.arrow") != crc32(b"what is in log/b.arrow")
