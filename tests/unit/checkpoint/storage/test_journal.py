import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.checkpoint.storage.committed_output import CommittedOutput
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import (
    AttemptStarted,
    CheckpointCompletedEntry,
    CheckpointDiscarded,
    CheckpointIdsReserved,
    ClaimedDiscarded,
    CommitsDone,
    CommitsStarted,
    DriverProcess,
    JobEnded,
    JournalEntry,
    JournalState,
    ResultClean,
    StartFailed,
    Summary,
)
from penstock.checkpoint.storage.journal_state import after, journal_state
from penstock.common.job_status import JobStatus
from penstock.crash_points import CrashPoint, arm, disarm
from penstock.errors import CorruptJournalError, FencedError
from penstock.storage.local_storage import LocalStorage


def started(attempt: str = "a1", restored: int | None = None, **more: object) -> AttemptStarted:
    start = AttemptStarted(attempt, 1.0, "host", 1, restored)
    return msgspec.structs.replace(start, **more)


PROCESS = DriverProcess("host", "machine", 1, 2, "command")


def reserved(upto: int, attempt: str = "a1") -> CheckpointIdsReserved:
    return CheckpointIdsReserved(attempt, upto, 1.0)


def completed(n: int, attempt: str = "a1", *, savepoint: bool = False) -> CheckpointCompletedEntry:
    return CheckpointCompletedEntry(n, attempt, f"/jobs/j/chk-{n}", savepoint, 7, 1.0)


def open_journal(root: Path) -> Journal:
    return Journal(LocalStorage(root), "count", summarise_after=1_000_000)


def taken(root: Path, attempt: str) -> Journal:
    """A driver that has won an attempt."""
    journal = open_journal(root)
    journal.entries()
    journal.append(started(attempt))
    return journal


# -- what one driver sees -----------------------------------------------------------------------


def test_every_kind_of_entry_is_read_back(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    all_kinds: list[JournalEntry] = [
        started(restored=3, restored_path="/sp", fresh=True, work_dirs=["/tmp/x"]),
        StartFailed("a1", 1.5),
        reserved(1000),
        completed(4, savepoint=True),
        CommitsStarted(4, "a1", 2.0),
        CommitsDone(4, "a1", 2.5),
        CheckpointDiscarded(4, "a1", 3.0),
        ClaimedDiscarded("a1", "/sp", 3.0),
        JobEnded.of("a1", JobStatus.FINISHED, 4.0, "/sp/4"),
        ResultClean("a1", 5.0),
    ]
    assert [journal.append(entry) for entry in all_kinds] == list(range(1, 11))
    assert open_journal(tmp_path).entries() == list(enumerate(all_kinds, 1))
    assert {type(e) for e in all_kinds} | {Summary} == set(JournalEntry.__args__)


def test_entries_are_files_named_by_their_index(tmp_path: Path) -> None:
    taken(tmp_path, "a1").append(reserved(10))
    names = sorted(path.name for path in (tmp_path / "journal").iterdir())
    assert names == ["000000000001", "000000000002"]
    body = msgspec.json.decode((tmp_path / "journal" / names[1]).read_bytes())
    assert body["entry"] == {
        "type": "CheckpointIdsReserved", "attempt": "a1", "upto": 10, "time": 1.0
    }  # fmt: skip


def test_an_empty_journal_begins_at_the_first_attempt(tmp_path: Path) -> None:
    state = open_journal(tmp_path).state()
    assert (state.tail, state.next_attempt, state.highest_id) == (0, "a1", 0)
    assert (state.completed, state.ended, state.last_attempt) == ((), None, None)


def test_threads_of_one_driver_append_all_their_entries(tmp_path: Path) -> None:
    journal = taken(tmp_path, "a1")

    def append(first: int) -> None:
        for n in range(first, first + 10):
            journal.append(completed(n))

    threads = [threading.Thread(target=append, args=(first,)) for first in (100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = {c.checkpoint for c in journal.state().completed}
    assert ids == {first + n for first in (100, 200, 300) for n in range(10)}


def test_an_entry_of_another_attempt_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="attempt None"):
        open_journal(tmp_path).append(completed(1))
    with pytest.raises(ValueError, match="attempt a1"):
        taken(tmp_path, "a1").append(completed(1, "a2"))


# -- fencing ------------------------------------------------------------------------------------


def test_a_driver_that_slept_through_a_takeover_can_write_nothing_more(tmp_path: Path) -> None:
    old = taken(tmp_path, "a1")
    old.append(completed(1))
    new = taken(tmp_path, "a2")
    for _ in range(2):
        with pytest.raises(FencedError) as caught:
            old.append(completed(2))
        assert caught.value.args == ("count", "a1", "a2")
    with pytest.raises(FencedError):
        old.check_tail()
    with pytest.raises(FencedError):
        old.entries()
    with pytest.raises(FencedError):
        old.append(started("a3"))
    new.check_tail()
    new.append(completed(2, "a2"))
    assert [c.attempt for c in new.state().completed] == ["a1", "a2"]


def test_a_driver_is_fenced_even_if_the_other_one_has_ended(tmp_path: Path) -> None:
    old = taken(tmp_path, "a1")
    new = taken(tmp_path, "a2")
    new.append(JobEnded.of("a2", JobStatus.CANCELED, 1.0))
    with pytest.raises(FencedError):
        old.check_tail()


def test_a_result_is_marked_clean_only_if_no_other_driver_has_started(tmp_path: Path) -> None:
    dead = taken(tmp_path, "a1")
    dead.append(JobEnded.of("a1", JobStatus.FINISHED, 1.0, driver=PROCESS))
    heir, late = open_journal(tmp_path), open_journal(tmp_path)
    for journal in (heir, late):
        assert journal.state().ended is not None
        journal.adopt("a1")
    heir.append(ResultClean("a1", 2.0))
    ended = heir.state().ended
    assert ended is not None
    assert ended.driver is None
    for fenced in (dead, late):
        with pytest.raises(FencedError):
            fenced.append(ResultClean("a1", 3.0))


def test_of_two_drivers_that_start_at_once_one_wins_and_the_other_may_read_again(
    tmp_path: Path,
) -> None:
    first, second = open_journal(tmp_path), open_journal(tmp_path)
    assert first.state() == second.state()
    first.append(started("a1"))
    with pytest.raises(FencedError, match="another driver started attempt a1 first"):
        second.append(started("a1", pid=2))
    assert second.state().next_attempt == "a2"
    second.append(started("a2", pid=2))
    with pytest.raises(FencedError):
        first.check_tail()


def test_a_new_attempt_of_the_same_driver_continues_its_journal(tmp_path: Path) -> None:
    journal = taken(tmp_path, "a1")
    journal.append(started("a2"))
    journal.append(completed(1, "a2"))
    journal.check_tail()
    with pytest.raises(ValueError, match="a1"):
        journal.append(completed(2, "a1"))


class Blind(LocalStorage):
    """Writes, and cannot be listed for a while."""

    fails = False

    def list(self, directory: str) -> list[str]:
        fails, self.fails = self.fails, False
        if fails:
            raise OSError(5, "Input/output error")
        return super().list(directory)


def test_an_entry_after_which_the_listing_failed_is_not_written_twice(tmp_path: Path) -> None:
    storage = Blind(tmp_path)
    journal = Journal(storage, "count")
    journal.append(started("a1"))
    storage.fails = True
    with pytest.raises(OSError, match="Input/output"):
        journal.append(completed(1))
    journal.append(completed(1))
    journal.append(completed(2))
    assert [c.checkpoint for c in open_journal(tmp_path).state().completed] == [1, 2]
    assert len(storage.list("journal")) == 3


def test_a_journal_whose_directory_was_deleted_is_noticed_with_the_next_entry(
    tmp_path: Path,
) -> None:
    class InStore(LocalStorage):
        """As in a store, nothing is looked for before an entry is created."""

        def exists(self, path: str) -> bool:
            return True

    journal = Journal(InStore(tmp_path), "count")
    journal.append(started("a1"))
    journal.append(completed(1))
    shutil.rmtree(tmp_path / "journal")
    with pytest.raises(CorruptJournalError, match="it is missing"):
        journal.append(completed(2))


def test_a_summary_deletes_what_it_replaces_at_once(tmp_path: Path) -> None:
    class Counting(LocalStorage):
        deletions = 0

        def delete_all(self, paths: Iterable[str]) -> None:
            self.deletions += 1
            super().delete_all(paths)

        def delete(self, path: str) -> None:
            super().delete(path)

    storage = Counting(tmp_path)
    journal = Journal(storage, "count", summarise_after=10)
    journal.append(started("a1"))
    for n in range(1, 11):
        journal.append(completed(n))
    assert storage.deletions == 1
    assert len(storage.list("journal")) == 1


class Unreliable(LocalStorage):
    """Says that a write failed, whether it has happened or not."""

    fails: str | None = None

    def create(self, path: str, data: bytes) -> None:
        fails, self.fails = self.fails, None
        if fails != "before":
            super().create(path, data)
        if fails is not None:
            raise OSError(5, "Input/output error")


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("fails", ["before", "after"])
def test_an_entry_whose_write_failed_is_there_once_after_it_was_appended_again(
    tmp_path: Path, fails: str, looks: bool
) -> None:
    storage = Unreliable(tmp_path)
    journal = Journal(storage, "count")
    journal.append(started("a1"))
    storage.fails = fails
    with pytest.raises(OSError, match="Input/output"):
        journal.append(completed(1))
    if looks:
        journal.check_tail()
        journal.entries()
    journal.append(completed(1))
    journal.append(completed(2))
    assert [c.checkpoint for c in journal.state().completed] == [1, 2]


@pytest.mark.parametrize("fails", ["before", "after"])
def test_a_driver_is_not_fenced_by_its_own_failed_write(tmp_path: Path, fails: str) -> None:
    storage = Unreliable(tmp_path)
    journal = Journal(storage, "count")
    journal.append(started("a1"))
    storage.fails = fails
    with pytest.raises(OSError, match="Input/output"):
        journal.append(completed(1))
    journal.check_tail()
    journal.append(completed(2))
    ids = [c.checkpoint for c in journal.state().completed]
    assert ids == ([2] if fails == "before" else [1, 2])


def test_a_driver_is_not_fenced_by_its_own_entry_that_is_linked_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", twice)
    journal = taken(tmp_path, "a1")
    assert [journal.append(completed(n)) for n in (1, 2)] == [2, 3]
    assert [c.checkpoint for c in open_journal(tmp_path).state().completed] == [1, 2]


def test_crash_points_lie_on_both_sides_of_an_append(tmp_path: Path) -> None:
    class Died(Exception):
        pass

    def die() -> None:
        raise Died

    journal = taken(tmp_path, "a1")
    try:
        for point, there in [
            (CrashPoint.JOURNAL_BEFORE_APPEND, 0),
            (CrashPoint.JOURNAL_AFTER_APPEND, 1),
        ]:
            arm(point, action=die)
            with pytest.raises(Died):
                journal.append(completed(1))
            assert len(open_journal(tmp_path).state().completed) == there
    finally:
        disarm()


# -- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: b"", "truncated"),
        (lambda data: data[:-5], "truncated"),
        (lambda data: b"\xff" * 9, "malformed"),
        (lambda data: b"{}", "missing required field"),
        (lambda data: data.replace(b'"upto":10', b'"upto":11'), "checksum"),
        (lambda data: data.replace(b'"attempt":"a1"', b'"attempt":"\xff1"'), "."),
    ],
)
def test_a_damaged_entry_is_named(tmp_path: Path, damage: object, reason: str) -> None:
    taken(tmp_path, "a1").append(reserved(10))
    path = tmp_path / "journal" / "000000000002"
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(CorruptJournalError, match=reason) as caught:
        open_journal(tmp_path).entries()
    assert caught.value.path == str(path)


@pytest.mark.parametrize("index", [1, 2])
def test_a_missing_entry_is_named(tmp_path: Path, index: int) -> None:
    journal = taken(tmp_path, "a1")
    for n in (1, 2):
        journal.append(completed(n))
    path = tmp_path / "journal" / f"{index:012d}"
    path.unlink()
    with pytest.raises(CorruptJournalError, match="missing") as caught:
        open_journal(tmp_path).entries()
    assert caught.value.path == str(path)


def test_other_files_beside_the_entries_do_not_matter(tmp_path: Path) -> None:
    journal = taken(tmp_path, "a1")
    for name in (".staged-1", "000000000009.bak", "notes"):
        (tmp_path / "journal" / name).write_bytes(b"x")
    journal.append(completed(1))
    assert len(open_journal(tmp_path).entries()) == 2


# -- summaries ----------------------------------------------------------------------------------


def test_a_long_journal_is_summarised_and_means_the_same(tmp_path: Path) -> None:
    short = Journal(LocalStorage(tmp_path / "short"), "count", summarise_after=10)
    long = open_journal(tmp_path / "long")
    for journal in (short, long):
        journal.append(started("a1"))
        for n in range(1, 12):
            journal.append(completed(n))
            journal.append(CommitsStarted(n, "a1", 1.0))
            journal.append(CommitsDone(n, "a1", 1.0))
            if n > 2:
                journal.append(CheckpointDiscarded(n - 2, "a1", 1.0))
    assert len(list((tmp_path / "short" / "journal").iterdir())) <= 11
    mine, other = open_journal(tmp_path / "short").state(), long.state()
    assert [c.checkpoint for c in other.completed] == [10, 11]
    assert msgspec.structs.replace(mine, tail=0) == msgspec.structs.replace(other, tail=0)


def test_a_driver_that_slept_is_fenced_though_its_next_index_was_deleted(tmp_path: Path) -> None:
    old = taken(tmp_path, "a1")
    new = Journal(LocalStorage(tmp_path), "count", summarise_after=3)
    new.entries()
    new.append(started("a2"))
    for n in range(10, 20):
        new.append(completed(n, "a2"))
    assert not (tmp_path / "journal" / "000000000002").exists()
    for _ in range(2):
        with pytest.raises(FencedError) as caught:
            old.append(completed(1))
        assert caught.value.by_attempt == "a2"
    new.append(completed(20, "a2"))
    ids = [c.checkpoint for c in open_journal(tmp_path).state().completed]
    assert ids == list(range(10, 21))


@pytest.mark.parametrize("fails", ["before", "after"])
def test_a_summary_that_cannot_be_written_fails_no_append_and_is_tried_again(
    tmp_path: Path, fails: str
) -> None:
    class Full(LocalStorage):
        def create(self, path: str, data: bytes) -> None:
            is_full = b"Summary" in data and not path.endswith("9")
            if not is_full or fails == "after":
                super().create(path, data)
            if is_full:
                raise OSError(28, "No space left on device")

    journal = Journal(Full(tmp_path), "count", summarise_after=3)
    journal.append(started("a1"))
    for n in range(1, 12):
        journal.append(completed(n))
    assert [c.checkpoint for c in open_journal(tmp_path).state().completed] == list(range(1, 12))
    assert not (tmp_path / "journal" / "000000000001").exists()


class Interrupted(LocalStorage):
    def delete(self, path: str) -> None:
        if path.endswith("3"):
            raise KeyboardInterrupt
        super().delete(path)


def test_a_summary_that_is_interrupted_while_it_deletes_leaves_a_valid_journal(
    tmp_path: Path,
) -> None:
    journal = Journal(Interrupted(tmp_path), "count", summarise_after=4)
    journal.append(started("a1"))
    for n in range(1, 4):
        journal.append(completed(n))
    with pytest.raises(KeyboardInterrupt):
        journal.append(completed(4))
    names = sorted(path.name for path in (tmp_path / "journal").iterdir())
    assert names == [f"{n:012d}" for n in (3, 4, 5, 6)]
    state = open_journal(tmp_path).state()
    assert [c.checkpoint for c in state.completed] == [1, 2, 3, 4]
    taken(tmp_path, state.next_attempt).append(completed(5, "a2"))


def test_a_reader_bears_a_summary_that_is_written_while_it_reads(tmp_path: Path) -> None:
    writer = Journal(LocalStorage(tmp_path), "count", summarise_after=5)
    writer.append(started("a1"))
    for n in range(1, 5):
        writer.append(completed(n))

    class Slow(LocalStorage):
        def read(self, path: str) -> bytes:
            if path.endswith("3") and not path.endswith("13"):
                for n in range(5, 12):
                    writer.append(completed(n))
            return super().read(path)

    state = Journal(Slow(tmp_path), "count").state()
    assert [c.checkpoint for c in state.completed] == list(range(1, 12))


# -- what entries mean --------------------------------------------------------------------------


def meaning(*entries: JournalEntry) -> dict[str, object]:
    state = journal_state(enumerate(entries, 1))
    return {
        "completed": [c.checkpoint for c in state.completed],
        "restorable": [c.checkpoint for c in state.restorable],
        "next": (state.next_attempt, state.highest_id + 1),
    }


def test_reserved_ids_are_not_used_again_though_nothing_completed() -> None:
    state = meaning(started("a1"), reserved(1000), started("a2"))
    assert state["next"] == ("a3", 1001)


def test_ids_begin_above_everything_named() -> None:
    assert meaning(started("a1", 5000))["next"] == ("a2", 5001)
    assert meaning(started("a1"), completed(77))["next"] == ("a2", 78)


def test_discarded_checkpoints_cannot_be_restored() -> None:
    state = meaning(
        started(), completed(1), completed(2), CheckpointDiscarded(1, "a1", 1.0), completed(3)
    )
    assert state["completed"] == state["restorable"] == [2, 3]


def test_savepoints_are_kept_and_not_restored_by_themselves() -> None:
    state = meaning(started(), completed(1), completed(2, savepoint=True))
    assert (state["completed"], state["restorable"]) == ([1, 2], [1])


@pytest.mark.parametrize(
    ("start", "restorable"),
    [
        (started("a2", 3), [1, 2, 3]),
        (started("a2", 3, restored_path="/jobs/j/chk-3/"), [1, 2, 3]),
        (started("a2", 2, restored_path="/jobs/j/chk-2"), [1, 2]),
        (started("a2", fresh=True), []),
        (started("a2", 3, restored_path="/elsewhere/chk-3"), []),
        (started("a2", restored_path="/elsewhere/chk-3"), []),
        (started("a2", 4, restored_path="/jobs/j/chk-4"), []),
        (started("a2"), [1, 2, 3]),
    ],
)
def test_a_new_attempt_turns_away_from_what_it_did_not_go_on_from(
    start: AttemptStarted, restorable: list[int]
) -> None:
    before: list[JournalEntry] = [
        started("a1"),
        completed(1),
        completed(2),
        completed(3),
        completed(4, savepoint=True),
    ]
    assert meaning(*before, start)["restorable"] == restorable
    assert meaning(*before, start)["completed"] == [1, 2, 3, 4]
    after = meaning(*before, start, completed(9, "a2"))
    assert after["restorable"] == [*restorable, 9]


def test_commits_are_known_for_retained_and_newer_checkpoints() -> None:
    state = journal_state(
        enumerate(
            [
                started(),
                completed(1),
                CommitsStarted(1, "a1", 1.0),
                CommitsDone(1, "a1", 1.0),
                completed(2),
                CommitsStarted(2, "a1", 1.0),
                CheckpointDiscarded(1, "a1", 1.0),
            ],
            1,
        )
    )
    assert state.commits_started == {2}
    assert state.commits_done == set()


def test_commits_of_another_jobs_snapshot_are_not_those_of_a_checkpoint_with_its_id() -> None:
    foreign: list[JournalEntry] = [
        started(restored_path="/other/chk-5"),
        CommitsStarted(5, "a1", 1.0),
        CommitsDone(5, "a1", 1.0),
    ]
    state = journal_state(enumerate([*foreign, completed(5)], 1))
    assert state.commits_started == state.commits_done == set()


def commits(n: int, attempt: str) -> list[JournalEntry]:
    return [CommitsStarted(n, attempt, 1.0), CommitsDone(n, attempt, 1.0)]


@pytest.mark.parametrize("restored", [None, 5])
def test_commits_of_another_jobs_snapshot_are_not_those_of_an_older_savepoint_with_its_id(
    restored: int | None,
) -> None:
    foreign = started("a2", restored, restored_path="/other/savepoint", restored_crc=42)
    entries = [started(), completed(5, savepoint=True), foreign, *commits(5, "a2")]
    state = journal_state(enumerate(entries, 1))
    assert state.commits_started == state.commits_done == set()
    assert state.restorable == ()
    assert state.committed_crc == (42 if restored is None else None)


def test_a_checkpoint_commits_the_output_of_earlier_savepoints_of_its_attempt_only() -> None:
    entries: list[JournalEntry] = [
        started(),
        completed(1),
        completed(2, savepoint=True),
        started("a2", 1, restored_path="/jobs/j/chk-1"),
        *commits(1, "a2"),
        completed(3, "a2", savepoint=True),
        completed(4, "a2"),
        completed(5, "a2", savepoint=True),
        *commits(4, "a2"),
    ]
    assert journal_state(enumerate(entries, 1)).commits_done == {1, 3, 4}


def test_commits_of_a_job_with_abandoned_snapshots_do_not_accumulate() -> None:
    entries: list[JournalEntry] = [
        started(),
        completed(1),
        completed(2, savepoint=True),
        started("a2", fresh=True),
    ]
    for n in range(3, 200):
        entries += [completed(n, "a2"), *commits(n, "a2")]
        entries += [CheckpointDiscarded(n - 1, "a2", 1.0)] if n > 3 else []
    state = journal_state(enumerate(entries, 1))
    assert state.commits_started == state.commits_done == {199}


def test_what_a_subsumed_checkpoint_has_committed_stays_known() -> None:
    """The next checkpoint holds it, too, if that completed while it was being committed."""
    entries: list[JournalEntry] = [started(), completed(5), completed(6)]
    subsumed = CheckpointDiscarded(5, "a1", 1.0)
    before = [*entries, *commits(5, "a1"), subsumed, CommitsStarted(6, "a1", 1.0)]
    after = [*entries, subsumed, *commits(5, "a1"), CommitsStarted(6, "a1", 1.0)]
    for written in (before, after):
        state = journal_state(enumerate(written, 1))
        assert state.committed_upto("a1") == 5
        # A summary replaces the entries.
        summary = Summary("a1", 1.0, state)
        read = msgspec.json.decode(msgspec.json.encode(summary), type=Summary).state
        assert read.committed_upto("a1") == 5


def test_what_is_committed_is_known_by_the_attempt_that_took_the_checkpoint() -> None:
    entries: list[JournalEntry] = [
        started(),
        completed(1),
        completed(2),
        completed(3, savepoint=True),
        started("a2", 2, restored_path="/jobs/j/chk-2"),
        *commits(2, "a2"),
        completed(4, "a2"),
        *commits(4, "a2"),
    ]
    state = journal_state(enumerate(entries, 1))
    # The second attempt has not seen what the first one prepared for its savepoint.
    assert [state.committed_upto(a) for a in ("a1", "a2", "a3")] == [2, 4, 0]
    discarded: list[JournalEntry] = [CheckpointDiscarded(n, "a2", 1.0) for n in (1, 2, 3)]
    state = journal_state(enumerate([*entries, *discarded, completed(5, "a2")], 1))
    assert [state.committed_upto(a) for a in ("a1", "a2")] == [0, 4]


def test_commits_of_another_jobs_snapshot_say_nothing_about_own_checkpoints() -> None:
    foreign: list[JournalEntry] = [
        started(restored_path="/other/chk-9", restored_crc=42),
        *commits(9, "a1"),
        completed(10),
    ]
    assert journal_state(enumerate(foreign, 1)).committed_upto("a1") == 0


def read_back(state: JournalState) -> JournalState:
    summary = msgspec.json.encode(Summary("a1", 1.0, state))
    return msgspec.json.decode(summary, type=Summary).state


def test_output_of_a_sink_that_was_left_out_is_pending_until_a_start_commits_it() -> None:
    entries: list[JournalEntry] = [
        started(),
        completed(5),
        *commits(5, "a1"),
        completed(6),
        started("a2", 6, restored_path="/jobs/j/chk-6", left_out=["b"]),
        *commits(6, "a2"),
    ]
    state = read_back(journal_state(enumerate(entries, 1)))
    left_out = state.committed_output("a1")
    assert [left_out.upto_of(uid) for uid in ("a", "b")] == [6, 5]
    assert state.commits_started == {5, 6}
    assert state.commits_done == {5}
    own = state_after(state, completed(7, "a2"), *commits(7, "a2"))
    assert own.committed_output("a2") == CommittedOutput(7)
    assert own.committed_output("a1") == left_out
    again = state_after(state, started("a3", 6, restored_path="/jobs/j/chk-6"), *commits(6, "a3"))
    assert again.committed_output("a1") == CommittedOutput(6)
    assert again.commits_done == {5, 6}
    forgotten = state_after(own, *(CheckpointDiscarded(n, "a2", 1.0) for n in (5, 6)))
    assert forgotten.left_out == {}


def test_output_of_a_sink_that_was_left_out_of_a_foreign_snapshot_is_pending() -> None:
    foreign = started(restored_path="/other", restored_crc=42, left_out=["b"])
    state = read_back(state_after(JournalState(), foreign, *commits(9, "a1")))
    committed = state.committed_foreign(9, 42)
    assert [committed.upto_of(uid) for uid in ("a", "b")] == [9, 0]
    assert state.committed_foreign(9, 43) == CommittedOutput()
    # What is committed later, and was discarded meanwhile, is not taken for the snapshot's.
    assert state_after(state, *commits(10, "a1")).committed_foreign(9, 42) == committed
    again = started("a2", restored_path="/other", restored_crc=42)
    whole = state_after(state, again, *commits(9, "a2"))
    assert whole.committed_foreign(9, 42) == CommittedOutput(9)


def test_what_one_of_two_records_says_is_committed() -> None:
    one, other = CommittedOutput(9, {"a": 0, "b": 3}), CommittedOutput(7, {"b": 5})
    for merged in (one.merged(other), other.merged(one)):
        assert merged == CommittedOutput(9, {"a": 7, "b": 5})
    assert one.merged(CommittedOutput(9)) == CommittedOutput(9)


def state_after(state: JournalState, *entries: JournalEntry) -> JournalState:
    for entry in entries:
        state = after(state, state.tail + 1, entry)
    return state


def test_a_summary_of_an_older_version_tells_what_is_committed_of_retained_checkpoints() -> None:
    state = journal_state(enumerate([started(), completed(5), *commits(5, "a1"), completed(6)], 1))
    old = msgspec.json.decode(msgspec.json.encode(Summary("a1", 1.0, state)))
    del old["state"]["committed"]
    read = msgspec.json.decode(msgspec.json.encode(old), type=Summary).state
    assert read.committed_upto("a1") == 5


def test_an_ended_job_runs_again_with_a_new_attempt() -> None:
    end = JobEnded.of("a1", JobStatus.FINISHED, 1.0)
    assert journal_state(enumerate([started(), end], 1)).ended == end
    assert journal_state(enumerate([started(), end, started("a2")], 1)).ended is None


def test_a_job_that_restarts_for_ever_has_a_short_summary() -> None:
    state = journal_state((n, started(f"a{n}")) for n in range(1, 500))
    assert len(state.attempts) == 100
    assert state.last_attempt is not None
    assert (state.last_attempt.attempt, state.next_attempt) == ("a499", "a500")


def test_checkpoints_that_users_named_are_remembered_until_they_are_discarded() -> None:
    entries: list[JournalEntry] = [
        started("a1", restored_path="chk-7"),
        started("a2", restored_path="chk-9"),
        StartFailed("a2", 1.0),
        started("a3", restored_path="/elsewhere/chk-8"),
        started("a4", restored_path="chk-5", restored=5),
    ]
    entries += [started(f"a{n}", restored_path="chk-7") for n in range(5, 200)]
    state = journal_state(enumerate(entries, 1))
    assert state.named == (7, 9)
    discarded = CheckpointDiscarded(7, "a199", 1.0)
    assert journal_state(enumerate([*entries, discarded], 1)).named == (9,)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_of_competing_drivers_only_entries_of_the_last_attempt_count_in_one_order(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Drivers take over from each other at any moment; a fenced one keeps trying."""
    root = tmp_path_factory.mktemp("journal")
    drivers: list[tuple[str, Journal]] = []
    expected: list[JournalEntry] = []
    for n in range(data.draw(st.integers(1, 25))):
        if not drivers or data.draw(st.integers(0, 3)) == 0:
            journal = Journal(LocalStorage(root), "count", summarise_after=4)
            attempt = str(journal.state().next_attempt)
            expected.append(started(attempt))
            journal.append(expected[-1])
            drivers.append((attempt, journal))
            continue
        attempt, journal = data.draw(st.sampled_from(drivers[-3:]))
        entry = completed(n, attempt)
        if attempt == drivers[-1][0]:
            expected.append(entry)
            journal.append(entry)
        else:
            with pytest.raises(FencedError):
                journal.append(entry)
    state = Journal(LocalStorage(root), "count").state()
    wanted = journal_state(enumerate(expected, 1))
    assert msgspec.structs.replace(state, tail=0) == msgspec.structs.replace(wanted, tail=0)


# -- killed drivers -----------------------------------------------------------------------------

DRIVER = """
import sys
from collections.abc import Iterable
from pathlib import Path
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import (AttemptStarted, CheckpointCompletedEntry)
from penstock.storage.local_storage import LocalStorage
journal = Journal(LocalStorage(Path(sys.argv[1])), "count", summarise_after=4)
attempt = journal.state().next_attempt
journal.append(AttemptStarted(attempt, 1.0, "host", 1))
for n in range(1, 9):
    journal.append(CheckpointCompletedEntry(n, attempt, f"chk-{n}", False, 0, 1.0))
"""


@pytest.mark.parametrize(
    ("point", "there"), [("journal.before-append", 5), ("journal.after-append", 6)]
)
def test_a_killed_driver_leaves_a_journal_that_its_successor_continues(
    tmp_path: Path, point: str, there: int
) -> None:
    environment = os.environ | {"PENSTOCK_CRASH_AT": f"{point}:7"}
    command = [sys.executable, "-c", DRIVER, str(tmp_path)]
    killed = subprocess.run(command, env=environment, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    state = open_journal(tmp_path).state()
    assert [c.checkpoint for c in state.completed] == list(range(1, there + 1))
    subprocess.run(command, timeout=60, check=True)
    state = open_journal(tmp_path).state()
    assert [c.attempt for c in state.completed] == ["a1"] * there + ["a2"] * 8


def test_the_end_of_a_job_is_spelled_as_it_always_was() -> None:
    spelled = {
        "FINISHED": JobEnded.of("a1", JobStatus.FINISHED, 1.0),
        "CANCELED": JobEnded.of("a1", JobStatus.CANCELED, 1.0),
        "FAILED": JobEnded.of("a1", JobStatus.FAILED, 1.0),
        "STOPPED": JobEnded.of("a1", JobStatus.FINISHED, 1.0, "/sp"),
    }
    for name, entry in spelled.items():
        data = msgspec.json.encode(entry)
        assert msgspec.json.decode(data)["status"] == name
        assert msgspec.json.decode(data, type=JobEnded) == entry
    assert spelled["STOPPED"].status is JobStatus.FINISHED


def test_a_driver_whose_directory_is_gone_for_a_while_writes_nothing_elsewhere(
    tmp_path: Path,
) -> None:
    journal = taken(tmp_path / "job", "a1")
    (tmp_path / "job").rename(tmp_path / "unmounted")
    (tmp_path / "job").mkdir()
    for use in (journal.state, journal.check_tail, lambda: journal.append(reserved(10))):
        with pytest.raises(CorruptJournalError, match="it is missing"):
            use()
    (tmp_path / "job").rmdir()
    (tmp_path / "unmounted").rename(tmp_path / "job")
    journal.append(reserved(10))
    assert open_journal(tmp_path / "job").state().highest_id == 10
