from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from penstock.connectors.contracts.sink import WriterContext
from penstock.connectors.staging.staged_output import (
    MAX_INLINE_BYTES,
    PendingOutput,
    Spool,
    StagedOutput,
    load_staged,
    read_staged,
    stage_bytes,
)
from penstock.connectors.staging.staging_directory import StagingDirectory
from penstock.errors import CorruptStagedRecordsError, LostStagedFileError

LARGE = b"x" * (MAX_INLINE_BYTES + 1)


@pytest.fixture
def directory(tmp_path: Path) -> StagingDirectory:
    return StagingDirectory(tmp_path / "step", "a1")


def spooled(directory: StagingDirectory, *blocks: bytes, name: str = "n") -> StagedOutput:
    spool = Spool(directory, name)
    for block in blocks:
        spool.add(block)
    return spool.finish()


def content(directory: StagingDirectory, *outputs: StagedOutput) -> bytes:
    return b"".join(read_staged(directory.root, outputs))


def test_little_output_stays_inline_and_makes_no_file(directory: StagingDirectory) -> None:
    output = spooled(directory, b"a", b"b")
    assert output == StagedOutput(2, b"ab")
    assert not directory.root.exists()
    assert content(directory, output) == b"ab"


def test_much_output_goes_into_a_file_named_relative_to_the_root(
    directory: StagingDirectory, tmp_path: Path
) -> None:
    output = spooled(directory, b"a", LARGE, b"b")
    assert (output.size, output.data, output.name) == (len(LARGE) + 2, b"", "a1/n")
    moved = tmp_path / "moved"
    directory.root.rename(moved)
    assert b"".join(read_staged(moved, [output])) == b"a" + LARGE + b"b"


def test_a_missing_or_truncated_file_is_an_error(directory: StagingDirectory) -> None:
    output = spooled(directory, LARGE)
    path = output.path(directory.root)
    path.write_bytes(LARGE[:-1])
    with pytest.raises(LostStagedFileError, match=f"its task wrote {len(LARGE)}"):
        content(directory, output)
    path.unlink()
    with pytest.raises(LostStagedFileError, match="has 0 bytes"):
        output.check(directory.root)


def test_a_changed_file_is_an_error_unless_it_was_written_without_a_checksum(
    directory: StagingDirectory,
) -> None:
    output = spooled(directory, LARGE)
    output.path(directory.root).write_bytes(b"y" + LARGE[1:])
    with pytest.raises(CorruptStagedRecordsError, match="checksum"):
        content(directory, output)
    assert content(directory, msgspec.structs.replace(output, crc=None)) == b"y" + LARGE[1:]


def test_an_aborted_spool_leaves_no_file(directory: StagingDirectory) -> None:
    spool = Spool(directory, "n")
    spool.add(LARGE)
    spool.abort()
    assert not directory.path("n").exists()


def test_small_pending_outputs_are_joined_and_keep_their_order(directory: StagingDirectory) -> None:
    pending = PendingOutput(directory)
    file = spooled(directory, LARGE)
    for output in (StagedOutput(1, b"a"), StagedOutput(1, b"b"), file, StagedOutput(1, b"c")):
        pending.add(output)
    outputs = pending.finish()
    assert outputs == [StagedOutput(2, b"ab"), file, StagedOutput(1, b"c")]
    assert content(directory, *outputs) == b"ab" + LARGE + b"c"


@pytest.mark.parametrize("data", [b"", b"few", b"x" * 100_000])
def test_staged_bytes_reach_the_publisher(tmp_path: Path, data: bytes) -> None:
    for directory in (tmp_path / "staging", tmp_path / ".." / tmp_path.name / "staging"):
        staged = stage_bytes(data, WriterContext(0, 1, directory, "b1-0"))
        assert load_staged(staged, directory) == data
        assert len(staged) < 64 * 1024


def test_a_job_removes_no_files_of_another_job(directory: StagingDirectory, tmp_path: Path) -> None:
    own = spooled(directory, LARGE).path(directory.root)
    other = tmp_path / "other"
    other.write_bytes(b"x")
    directory.remove([own, other, own])
    assert not own.exists()
    assert other.exists()
