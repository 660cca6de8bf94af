import ctypes
import errno
import os
import re
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.common import Types
from penstock.common.serialization import Encoder
from penstock.connectors.contracts.committer import Committer, CommitterContext
from penstock.connectors.contracts.committing import CommitReport, commit_all
from penstock.connectors.contracts.sink import PublisherContext, SinkPublisher, WriterContext
from penstock.connectors.files.bucket_assigner import BucketAssigner, compile_pattern, zone_of
from penstock.connectors.files.committables import PendingPart, UnrolledPieces, encode
from penstock.connectors.files.local_part_files import LocalPartFiles
from penstock.connectors.files.rolling_policy import Piece, RollingPolicy, roll, roll_at_barrier
from penstock.connectors.files.sink import FileSink, OutputFileConfig, RowFormatBuilder
from penstock.errors import (
    CommitFailedError,
    CorruptStagedRecordsError,
    InvalidBucketError,
    LostStagedFileError,
    UnsafeNameError,
)
from penstock.storage import durable_files

STEP = Path("step")


def into(directory: Path) -> RowFormatBuilder:
    builder = FileSink.for_row_format(str(directory), Encoder.simple_string_encoder())
    return builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())


def staged(
    sink: FileSink, batch: int, subtask: int, values: list[Any], type_info: Any = None
) -> bytes:
    name = f"a1-{batch}-0-{subtask}-0"
    type_info = type_info or Types.STRING()
    writer = sink.writer(WriterContext(subtask, 2, STEP, name, type_info, "job", "a1"))
    for value in values:
        writer.write(value)
    return writer.stage()


def publisher_of(
    sink: FileSink, restored: Sequence[bytes] = (), job: str = "job", job_instance: str = ""
) -> SinkPublisher:
    context = PublisherContext(
        2, "files", STEP, job, "a1", True, restored, job_instance, staging_dir=STEP
    )
    return sink.publisher(context)


def committer_of(sink: FileSink, job: str = "job", job_instance: str = "") -> Committer:
    return sink.committer(CommitterContext(job, "a1", "files", STEP, job_instance))


def commit(
    sink: FileSink, committables: Sequence[bytes], job: str = "job", job_instance: str = ""
) -> CommitReport:
    committer = committer_of(sink, job, job_instance)
    return commit_all(committer, committables, retries=0, pause=lambda _: None, step="files")


def run(sink: FileSink, batches: list[list[list[Any]]], type_info: Any = None) -> None:
    publisher = publisher_of(sink)
    for batch, subtasks in enumerate(batches):
        publisher.publish(
            [
                staged(sink, batch, subtask, values, type_info)
                for subtask, values in enumerate(subtasks)
            ]
        )
    commit(sink, publisher.at_barrier(1, flush=True)().committables)
    committer_of(sink).sweep([])
    publisher.close()


def contents(directory: Path) -> list[str]:
    return sorted(path.read_text() for path in directory.iterdir())


def test_each_subtask_gets_one_part_across_micro_batches(tmp_path: Path) -> None:
    run(into(tmp_path).build(), [[["a"], ["x"]], [["b"], []], [["c"], ["y"]]])
    assert contents(tmp_path) == ["a\nb\nc\n", "x\ny\n"]


def test_parts_are_named_after_prefix_writer_number_and_suffix(tmp_path: Path) -> None:
    config = OutputFileConfig.builder().with_part_prefix("p").with_part_suffix(".txt").build()
    policy = RollingPolicy.default_rolling_policy(part_size=2)
    sink = into(tmp_path).with_output_file_config(config).with_rolling_policy(policy).build()
    run(sink, [[["aa", "bb"]]])
    names = sorted(path.name for path in tmp_path.iterdir())
    assert all(re.fullmatch(r"p-[0-9a-f-]{36}-[01]\.txt", name) for name in names)
    assert len(names) == 2


def test_parts_obey_the_part_size_and_end_between_records(tmp_path: Path) -> None:
    policy = RollingPolicy.default_rolling_policy(part_size=100)
    lines = [str(number).rjust(9) for number in range(95)]
    batches = [[lines[first : first + 7]] for first in range(0, 95, 7)]
    run(into(tmp_path).with_rolling_policy(policy).build(), batches)
    parts = sorted(tmp_path.iterdir(), key=lambda path: int(path.name.rpartition("-")[2]))
    assert all(path.stat().st_size <= 110 for path in parts)
    assert "".join(path.read_text() for path in parts).splitlines() == lines


def test_only_finished_files_remain(tmp_path: Path) -> None:
    sink = into(tmp_path).build()
    staged(sink, 7, 0, ["lost"])
    run(sink, [[["a"]]])
    assert contents(tmp_path) == ["a\n"]


def test_files_already_there_are_not_touched(tmp_path: Path) -> None:
    for _ in range(2):
        run(into(tmp_path).build(), [[["a"]]])
    assert contents(tmp_path) == ["a\n", "a\n"]


def test_unfinished_output_is_hidden_from_readers_of_the_directory(tmp_path: Path) -> None:
    sink = into(tmp_path).build()
    publisher_of(sink).publish([staged(sink, 1, 0, ["a"])])
    (only,) = tmp_path.iterdir()
    assert only.name.startswith(".staging-")


def test_a_missing_staged_file_is_an_error_and_makes_nothing_visible(tmp_path: Path) -> None:
    sink = into(tmp_path).build()
    publisher = publisher_of(sink)
    publisher.publish([staged(sink, 1, 0, ["a"]), staged(sink, 1, 1, ["b"])])
    (tmp_path / ".staging-job/step/a1/a1-1-0-1-0-0.piece").unlink()
    pre_commit = publisher.at_barrier(1, flush=True)
    with pytest.raises(LostStagedFileError):
        pre_commit()
    with pytest.raises(LostStagedFileError):
        publisher.at_barrier(2, flush=True)()
    assert not list(tmp_path.glob("part-*"))


def pending_part(sink: FileSink, batch: int = 1) -> bytes:
    publisher = publisher_of(sink)
    publisher.publish([staged(sink, batch, 0, ["a"])])
    (committable,) = publisher.at_barrier(1, flush=True)().committables
    return committable


def test_a_part_that_is_missing_under_both_names_fails_the_commit(tmp_path: Path) -> None:
    sink = into(tmp_path).build()
    committable = pending_part(sink)
    next(tmp_path.rglob("*.pending")).unlink()
    with pytest.raises(CommitFailedError, match=r"LostPendingFileError.*/part-") as caught:
        commit(sink, [committable])
    assert (caught.value.kind, caught.value.count) == ("impossible", 1)


def test_a_changed_pending_file_is_not_made_visible(tmp_path: Path) -> None:
    sink = into(tmp_path).build()
    committable = pending_part(sink)
    next(tmp_path.rglob("*.pending")).write_text("other")
    with pytest.raises(CommitFailedError, match="has 5 bytes, but its task wrote 2"):
        commit(sink, [committable])
    assert not list(tmp_path.glob("part-*"))


def test_a_pending_file_of_the_same_size_but_other_content_is_not_made_visible(
    tmp_path: Path,
) -> None:
    sink = into(tmp_path).build()
    committable = pending_part(sink)
    next(tmp_path.rglob("*.pending")).write_text("b\n")
    with pytest.raises(CommitFailedError, match=r"CorruptStagedRecordsError.*checksum"):
        commit(sink, [committable])
    assert not list(tmp_path.glob("part-*"))


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("flush", [True, False])
def test_a_piece_of_the_same_size_but_other_content_fails_the_checkpoint(
    tmp_path: Path, batches: int, flush: bool
) -> None:
    sink = into(tmp_path).build()
    publisher = publisher_of(sink)
    for batch in range(batches):
        publisher.publish([staged(sink, batch, 0, ["a"])])
    next(tmp_path.rglob("*.piece")).write_text("b\n")
    with pytest.raises(CorruptStagedRecordsError, match="checksum"):
        publisher.at_barrier(1, flush=flush)()


STAGED = "{out}/.staging-job/step/a1/x"
FORGED = [
    PendingPart("{out}/../secret", "{out}/part-1", 6, []),
    PendingPart("{out}/part-0", "{out}/part-1", 6, []),
    PendingPart("/etc/hostname", "{out}/part-1", 6, []),
    PendingPart(".staging-job/step/a1/x", "{out}/part-1", 6, []),
    PendingPart(f"{STAGED}/../../../../../secret", "{out}/part-1", 6, []),
    PendingPart("{out}/.staging-job/other/a1/x", "{out}/part-1", 6, []),
    PendingPart("{out}/.staging-job/step/x/x", "{out}/part-1", 6, []),
    PendingPart(STAGED, "/tmp/part-1", 6, []),
    PendingPart(STAGED, "{out}/../part-1", 6, []),
    PendingPart(STAGED, "{out}/.staging-other/x", 6, []),
    PendingPart(STAGED, "{out}/part-1", 6, ["{out}/../secret"]),
    PendingPart(STAGED, "{out}/part-1", 6, ["{out}/part-0"]),
]


@pytest.mark.parametrize("forged", FORGED, ids=range(len(FORGED)))
def test_a_forged_committable_touches_nothing_outside_the_sinks_own_files(
    tmp_path: Path, forged: PendingPart
) -> None:
    out = tmp_path / "out"
    sink = into(out).build()
    for path in (tmp_path / "secret", out / "part-0", out / ".staging-job/step/a1/x"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
    before = sorted(tmp_path.rglob("*"))
    data = encode(
        PendingPart(
            forged.pending.format(out=out),
            forged.final.format(out=out),
            forged.size,
            [piece.format(out=out) for piece in forged.pieces],
        )
    )
    with pytest.raises(CommitFailedError, match="UnsafeNameError") as caught:
        commit(sink, [data])
    assert caught.value.kind == "impossible"
    assert sorted(tmp_path.rglob("*")) == before
    committer_of(sink).sweep([data])
    committer_of(sink).discard([data], [])
    assert (tmp_path / "secret").exists()
    assert (out / "part-0").exists()


def test_forged_sink_state_is_refused(tmp_path: Path) -> None:
    sink = into(tmp_path / "out").build()
    (tmp_path / "secret").write_text("secret")
    for bucket, path in (("", "../secret"), ("", str(tmp_path / "secret")), ("../x", "")):
        state = encode(UnrolledPieces(0, bucket, [Piece(path, 6, 0.0)]))
        with pytest.raises((UnsafeNameError, InvalidBucketError)):
            publisher_of(sink, [state])


def test_pending_files_and_pieces_without_checksums_are_from_older_versions(
    tmp_path: Path,
) -> None:
    """They are named after the job only, and are committed where they are."""
    old = tmp_path / ".staging-job/step/a1"
    old.mkdir(parents=True)
    for name, text in {"one.piece": "a\n", "two.pending": "b\n"}.items():
        (old / name).write_text(text)
    pending = msgspec.msgpack.encode(
        ["pending", str(old / "two.pending"), str(tmp_path / "part-two"), 2, [], []]
    )
    state = msgspec.msgpack.encode(["unrolled", 0, "", [[str(old / "one.piece"), 2, 1.0]]])
    sink = into(tmp_path).build()
    publisher = publisher_of(sink, [state], job_instance="new")
    commit(sink, [pending], job_instance="new")
    committables = publisher.at_barrier(2, flush=True)().committables
    commit(sink, committables, job_instance="new")
    committer_of(sink, job_instance="new").discard([state, pending, *committables], [])
    committer_of(sink, job_instance="new").sweep([])
    parts = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.read_text() for path in parts) == ["a\n", "b\n"]
    assert all(path.parent == tmp_path for path in parts)


class ByValue(BucketAssigner):
    def assigner(self) -> Callable[[Any], str]:
        return lambda value: value


@pytest.mark.parametrize(
    "bucket",
    ["/etc/cron.d", "..", "a/../../b", ".staging-job/x", "a\0b", "x" * 256, "\ud800", 7],
)
def test_a_bucket_outside_the_sinks_path_is_refused(tmp_path: Path, bucket: Any) -> None:
    sink = into(tmp_path).with_bucket_assigner(ByValue()).build()
    with pytest.raises(InvalidBucketError) as caught:
        staged(sink, 1, 0, [bucket])
    assert caught.value.path == str(tmp_path)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("bucket", ["", "a", "a/b", "a..b", ".hidden", "x" * 255])
def test_a_bucket_below_the_sinks_path_is_accepted(tmp_path: Path, bucket: str) -> None:
    sink = into(tmp_path).with_bucket_assigner(ByValue()).build()
    run(sink, [[[bucket]]])
    assert [path.read_text() for path in (tmp_path / bucket).glob("part-*")] == [f"{bucket}\n"]


def test_a_path_with_dots_is_committed_and_continued(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    sink = into(tmp_path / "a" / ".." / "out").build()
    publisher = publisher_of(sink)
    publisher.publish([staged(sink, 1, 0, ["a"])])
    state = publisher.at_barrier(1, flush=False)().state
    restored = publisher_of(sink, state)
    commit(sink, restored.at_barrier(2, flush=True)().committables)
    assert [path.read_text() for path in (tmp_path / "out").glob("part-*")] == ["a\n"]


def test_a_file_in_the_way_is_not_overwritten(tmp_path: Path) -> None:
    sink = into(tmp_path).build()
    committable = pending_part(sink)
    pending = next(tmp_path.rglob("*.pending"))
    taken = tmp_path / pending.name.removesuffix(".pending")
    taken.write_text("precious")
    with pytest.raises(CommitFailedError, match="OccupiedPathError"):
        commit(sink, [committable])
    assert taken.read_text() == "precious"
    taken.unlink()
    assert commit(sink, [committable]).committed == 1
    assert taken.read_text() == "a\n"


def test_a_part_that_a_crash_left_with_both_names_is_committed_even_if_they_look_like_two_files(
    tmp_path: Path,
) -> None:
    sink = into(tmp_path).build()
    committable = pending_part(sink)
    pending = next(tmp_path.rglob("*.pending"))
    visible = tmp_path / pending.name.removesuffix(".pending")
    shutil.copyfile(pending, visible)
    assert commit(sink, [committable]).already_committed == 1
    assert visible.read_text() == "a\n"
    assert not pending.exists()


def test_a_file_that_is_moved_while_its_commit_is_interrupted_does_not_appear_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = into(tmp_path).build()
    committable = pending_part(sink)
    with monkeypatch.context() as patch:
        # The driver dies during the commit, and other parts have not appeared.
        patch.setattr(LocalPartFiles, "finish", lambda *_: None)
        commit(sink, [committable])
    (visible,) = tmp_path.glob("part-*")
    visible.unlink()
    with pytest.raises(CommitFailedError, match="LostPendingFileError"):
        commit(sink, [committable])
    assert list(tmp_path.glob("part-*")) == []


def test_a_hidden_name_is_removed_when_the_final_one_survives_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = into(tmp_path).build()
    committable = pending_part(sink)

    def power_loss(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(durable_files, "sync_directory", power_loss)
        with pytest.raises(KeyboardInterrupt):
            commit(sink, [committable])
    (visible,) = tmp_path.glob("part-*")
    visible.unlink()
    commit(sink, [committable])
    assert visible.read_text() == "a\n"


@pytest.mark.parametrize("can_rename", [True, False])
def test_without_hard_links_a_part_gets_its_name_and_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_rename: bool
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    if not can_rename:
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    sink = into(tmp_path).build()
    committable = pending_part(sink)
    pending = next(tmp_path.rglob("*.pending"))
    taken = tmp_path / pending.name.removesuffix(".pending")
    taken.write_text("precious")
    with pytest.raises(CommitFailedError, match="OccupiedPathError"):
        commit(sink, [committable])
    taken.unlink()
    assert commit(sink, [committable]).committed == 1
    assert commit(sink, [committable]).already_committed == 1
    assert taken.read_text() == "a\n"


def test_one_bad_part_keeps_no_other_from_being_committed(tmp_path: Path) -> None:
    sink = into(tmp_path).build()
    lost = pending_part(sink, 1)
    next(tmp_path.glob(".staging-*/*/*/*.pending")).unlink()
    good = pending_part(sink, 2)
    with pytest.raises(CommitFailedError, match="1 commit failed"):
        commit(sink, [lost, good])
    assert len(list(tmp_path.glob("part-*"))) == 1


def test_a_disk_without_hard_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    sink = into(tmp_path).build()
    committable = pending_part(sink)
    assert commit(sink, [committable]).committed == 1
    assert commit(sink, [committable]).already_committed == 1
    committer_of(sink).sweep([])
    assert contents(tmp_path) == ["a\n"]


def test_a_part_grows_across_checkpoints_until_it_is_rolled(tmp_path: Path) -> None:
    sink = into(tmp_path).build()
    publisher = publisher_of(sink)
    for batch in range(3):
        publisher.publish([staged(sink, batch, 0, [str(batch)])])
        snapshot = publisher.at_barrier(batch, flush=False)()
        assert (len(snapshot.committables), len(snapshot.state)) == (0, 1)
    commit(sink, publisher.at_barrier(3, flush=True)().committables)
    committer_of(sink).sweep([])
    assert contents(tmp_path) == ["0\n1\n2\n"]


def test_a_part_grows_on_after_a_restore(tmp_path: Path) -> None:
    sink = into(tmp_path).build()
    publisher = publisher_of(sink)
    publisher.publish([staged(sink, 1, 0, ["a"]), staged(sink, 1, 1, ["b"])])
    state = publisher.at_barrier(1, flush=False)().state
    restored = publisher_of(sink, state[::-1])
    restored.publish([staged(sink, 2, 0, ["c"]), b""])
    commit(sink, restored.at_barrier(2, flush=True)().committables)
    committer_of(sink).sweep([])
    assert contents(tmp_path) == ["a\nc\n", "b\n"]


def test_a_restore_without_the_files_of_its_state_is_rejected(tmp_path: Path) -> None:
    sink = into(tmp_path).build()
    publisher = publisher_of(sink)
    publisher.publish([staged(sink, 1, 0, ["a"])])
    state = publisher.at_barrier(1, flush=False)().state
    next(tmp_path.rglob("*.piece")).unlink()
    with pytest.raises(LostStagedFileError):
        publisher_of(sink, state)


def pieces_in(directory: Path) -> list[str]:
    return sorted(path.read_text() for path in directory.rglob("*.piece"))


def test_an_older_checkpoint_keeps_its_pieces_when_parts_of_them_are_committed(
    tmp_path: Path,
) -> None:
    sink = into(tmp_path).build()
    publisher = publisher_of(sink)
    publisher.publish([staged(sink, 1, 0, ["a"])])
    older = publisher.at_barrier(1, flush=False)()
    publisher.publish([staged(sink, 2, 0, ["b"]), staged(sink, 2, 1, ["c"])])
    newer = publisher.at_barrier(2, flush=True)()
    commit(sink, newer.committables)
    assert pieces_in(tmp_path) == ["a\n"]
    restored = publisher_of(sink, older.state)
    commit(sink, restored.at_barrier(3, flush=True)().committables)
    parts = sorted(path.read_text() for path in tmp_path.glob("part-*"))
    assert parts == ["a\n", "a\nb\n", "c\n"]


def test_pieces_go_with_the_last_checkpoint_that_holds_them(tmp_path: Path) -> None:
    sink = into(tmp_path).build()
    publisher, committer = publisher_of(sink), committer_of(sink)
    snapshots = []
    for batch in (1, 2, 3):
        publisher.publish([staged(sink, batch, 0, [str(batch)])])
        snapshots.append(publisher.at_barrier(batch, flush=batch == 3)())
    commit(sink, snapshots[2].committables)
    publisher.publish([staged(sink, 4, 0, ["4"])])
    committer.discard(snapshots[0].state, [*snapshots[1].state, *snapshots[2].committables])
    assert pieces_in(tmp_path) == ["1\n", "2\n", "4\n"]
    for _ in range(2):
        committer.discard(snapshots[1].state, snapshots[2].committables)
        assert pieces_in(tmp_path) == ["4\n"]
    assert [path.read_text() for path in tmp_path.glob("part-*")] == ["1\n2\n3\n"]


def test_pieces_in_the_state_of_an_aborted_checkpoint_are_removed_with_their_parts_checkpoint(
    tmp_path: Path,
) -> None:
    sink = into(tmp_path).build()
    publisher = publisher_of(sink)
    publisher.publish([staged(sink, 1, 0, ["a"])])
    publisher.at_barrier(1, flush=False)()
    committables = publisher.at_barrier(2, flush=True)().committables
    commit(sink, committables)
    committer_of(sink).discard(committables, [])
    assert pieces_in(tmp_path) == []


def test_discarding_a_checkpoint_spares_the_files_of_another_job(tmp_path: Path) -> None:
    sink = into(tmp_path).build()
    publisher = publisher_of(sink)
    publisher.publish([staged(sink, 1, 0, ["a"])])
    state = publisher.at_barrier(1, flush=False)().state
    other = publisher_of(sink, state, "job-2")
    first = other.at_barrier(2, flush=False)()
    assert first.state == []
    commit(sink, first.committables, "job-2")
    committer_of(sink, "job-2").discard([*state, *first.committables], [])
    assert pieces_in(tmp_path) == ["a\n"]


def test_the_files_of_another_jobs_checkpoint_stay_for_that_job(tmp_path: Path) -> None:
    sink = into(tmp_path).build()
    publisher = publisher_of(sink)
    publisher.publish([staged(sink, 1, 0, ["a"])])
    state = publisher.at_barrier(1, flush=False)().state
    for job in ("job-2", "job-3"):
        other = publisher_of(sink, state, job)
        commit(sink, other.at_barrier(2, flush=True)().committables, job)
        committer_of(sink, job).sweep([])
    parts = [path.read_text() for path in tmp_path.glob("part-*")]
    assert parts == ["a\n", "a\n"]
    assert [path.name for path in tmp_path.glob(".staging-*")] == [".staging-job"]


def test_typed_values_are_written_as_java_would(tmp_path: Path) -> None:
    type_info = Types.TUPLE([Types.STRING(), Types.DOUBLE()])
    run(into(tmp_path).build(), [[[("a", 1e10)]]], type_info)
    assert contents(tmp_path) == ["(a,1.0E10)\n"]


def test_by_default_buckets_are_named_after_the_hour(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()
    run(sink, [[["a"]]])
    (bucket,) = tmp_path.iterdir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d--\d\d", bucket.name)
    assert contents(bucket) == ["a\n"]


def test_java_patterns_are_understood() -> None:
    moment = datetime(2024, 3, 5, 7, 8, 9, tzinfo=UTC)
    assert compile_pattern("yyyy-MM-dd--HH")(moment) == "2024-03-05--07"
    assert compile_pattern("'day'=yyyy/MM/dd''mm%ss")(moment) == "day=2024/03/05'08%09"
    with pytest.raises(ValueError, match="got 'QQQ'"):
        compile_pattern("QQQ")


def test_zones_are_found_by_name_and_by_offset() -> None:
    assert zone_of("GMT-08:00") == timezone(timedelta(hours=-8))
    assert zone_of(None) is None
    assert str(zone_of("Europe/Vienna")) == "Europe/Vienna"
    with pytest.raises(ValueError, match="'Nowhere'"):
        BucketAssigner.date_time_bucket_assigner(timezone_id="Nowhere")


def test_a_part_does_not_wait_for_a_clock_that_was_set_back() -> None:
    policy = RollingPolicy.default_rolling_policy(100, 60_000, 60_000)
    pieces = [Piece("a", 10, 10_000.0), Piece("b", 10, 10_001.0)]
    complete, rest = roll_at_barrier(pieces, policy, 10_002.0 - 3600, flush=False)
    assert (complete, rest) == ([pieces], [])


def test_parts_roll_when_they_are_old_or_idle() -> None:
    pieces = [Piece(str(at), 1, at) for at in (0.0, 5.0, 9.0, 10.0, 11.0, 16.5)]
    policy = RollingPolicy.default_rolling_policy(100, 10_000, 5_500)
    times = [[piece.time for piece in part] for part in roll(pieces, policy)]
    assert times == [[0.0, 5.0, 9.0], [10.0, 11.0], [16.5]]
    assert len(roll(pieces, RollingPolicy.on_checkpoint_rolling_policy())) == 1


def test_a_barrier_ends_parts_that_are_large_old_or_idle() -> None:
    pieces = [Piece(str(at), 10, at) for at in (0.0, 1.0)]

    def open_at(now: float, policy: RollingPolicy, *, flush: bool = False) -> int:
        return len(roll_at_barrier(pieces, policy, now, flush=flush)[1])

    policy = RollingPolicy.default_rolling_policy(100, 10_000, 5_000)
    assert open_at(5.9, policy) == 2
    assert open_at(6.0, policy) == 0
    assert open_at(2.0, RollingPolicy.default_rolling_policy(20, 10_000, 5_000)) == 0
    assert open_at(9.9, RollingPolicy.default_rolling_policy(100, 10_000, 50_000)) == 2
    assert open_at(10.0, RollingPolicy.default_rolling_policy(100, 10_000, 50_000)) == 0
    assert open_at(1.0, policy, flush=True) == 0
    assert open_at(1.0, RollingPolicy.on_checkpoint_rolling_policy()) == 0
    assert roll_at_barrier([], policy, 0.0, flush=True) == ([], [])


def test_limits_that_are_not_positive_are_rejected() -> None:
    with pytest.raises(ValueError, match="part_size=0"):
        RollingPolicy.default_rolling_policy(part_size=0)
