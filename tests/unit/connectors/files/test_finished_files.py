"""A watched directory: what a checkpoint holds of it does not grow with all files ever read."""

from __future__ import annotations

import errno
import itertools
import os
import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from penstock.common.time import Duration
from penstock.connectors.contracts.source import EnumeratorContext, SourceEnumerator
from penstock.connectors.files import enumerator, finished_files
from penstock.connectors.files.listing import Listing, list_files
from penstock.connectors.files.source import FileSource
from penstock.connectors.formats.text_lines import StreamFormat

Snapshot = tuple[dict[str, int], bytes]


class Watching:
    """A job that watches a directory, without a job around it."""

    def __init__(self, directory: Path, **context: Any) -> None:
        self.now = 0.0
        self._context = context
        lines = StreamFormat.text_line_format()
        builder = FileSource.for_record_stream_format(lines, directory)
        self.source = builder.monitor_continuously(Duration.of_seconds(1)).build()
        self.enumerator = self.start(({}, b""))

    def start(self, snapshot: Snapshot) -> SourceEnumerator:
        positions, state = snapshot
        self.enumerator = self.source.enumerator(
            EnumeratorContext(
                1, Path(), time.time, lambda: None, monotonic=lambda: self.now, **self._context
            )
        )
        if state:
            self.enumerator.restore_state(state)
        self.enumerator.start(positions)
        return self.enumerator

    def read(self) -> list[str]:
        """Look for new files, and read everything there is."""
        self.now += 1.0
        records: list[str] = []
        while plan := self.enumerator.plan(1000):
            for part in itertools.chain.from_iterable(plan):
                records += itertools.chain.from_iterable(self.source.read_lists(part))
        return records

    def snapshot(self) -> Snapshot:
        return self.enumerator.positions(), self.enumerator.snapshot_state()

    def complete(self, snapshot: Snapshot) -> None:
        self.enumerator.notify_state_complete(snapshot[1])
        self.enumerator.notify_checkpoint_complete(snapshot[0])

    def checkpoint(self) -> Snapshot:
        taken = self.snapshot()
        self.complete(taken)
        return taken


def size_of(snapshot: Snapshot) -> int:
    positions, state = snapshot
    return sum(len(path) + 5 for path in positions) + len(state)


def test_files_that_are_removed_do_not_stay_in_checkpoints(tmp_path: Path) -> None:
    job = Watching(tmp_path)
    sizes = []
    for day in range(10):
        paths = [tmp_path / f"a-long-name-of-a-file-{day}-{n}" for n in range(50)]
        for path in paths:
            path.write_text(path.name)
        assert len(job.read()) == 50
        job.checkpoint()
        for path in paths:
            path.unlink()
        assert job.read() == []
        sizes.append(size_of(job.checkpoint()))
    assert max(sizes) < 100


def test_a_file_that_stays_costs_16_bytes_per_checkpoint(tmp_path: Path) -> None:
    job = Watching(tmp_path)
    empty = size_of(job.snapshot())
    for n in range(500):
        (tmp_path / f"a-long-name-of-a-file-{n}").write_text("x")
    assert len(job.read()) == 500
    assert size_of(job.snapshot()) - empty < 500 * 16 + 10


def test_a_restored_job_does_not_read_a_file_again(tmp_path: Path) -> None:
    job = Watching(tmp_path)
    (tmp_path / "a").write_text("one")
    assert job.read() == ["one"]
    job.start(job.snapshot())
    assert job.read() == []
    (tmp_path / "b").write_text("two")
    assert job.read() == ["two"]
    job.start(job.checkpoint())
    assert job.read() == []


def test_a_late_file_with_an_old_modification_time_is_read(tmp_path: Path) -> None:
    job = Watching(tmp_path)
    (tmp_path / "b").write_text("new")
    assert job.read() == ["new"]
    job.checkpoint()
    (tmp_path / "a").write_text("late")
    os.utime(tmp_path / "a", (0, 0))
    assert job.read() == ["late"]


def test_a_name_can_be_used_again_once_a_checkpoint_has_forgotten_it(tmp_path: Path) -> None:
    job = Watching(tmp_path)
    path = tmp_path / "a"
    path.write_text("old")
    assert job.read() == ["old"]
    with_it = job.checkpoint()
    path.unlink()
    assert job.read() == []
    without_it = job.snapshot()
    path.write_text("new")
    # If it were read now, a job restored from the first checkpoint would lose it.
    assert job.read() == []
    job.complete(with_it)
    assert job.read() == []
    job.complete(without_it)
    assert job.read() == ["new"]
    job.start(without_it)
    assert job.read() == ["new"]


def test_a_file_that_was_away_for_a_moment_is_not_read_again(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    job = Watching(tmp_path / "in")
    path = tmp_path / "in" / "a"
    path.write_text("one")
    assert job.read() == ["one"]
    job.checkpoint()
    path.rename(tmp_path / "away")
    assert job.read() == []
    (tmp_path / "away").rename(path)
    assert job.read() == []
    job.checkpoint()
    assert job.read() == []


def test_a_file_that_comes_back_after_a_checkpoint_without_it_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    job = Watching(tmp_path / "in")
    path = tmp_path / "in" / "a"
    path.write_text("one")
    assert job.read() == ["one"]
    job.checkpoint()
    path.rename(tmp_path / "away")
    assert job.read() == []
    without_it = job.snapshot()
    (tmp_path / "away").rename(path)
    assert job.read() == []
    job.complete(without_it)
    assert job.read() == ["one"]
    # A job restored from that checkpoint does the same.
    job.start(without_it)
    assert job.read() == ["one"]


def test_a_file_that_a_listing_leaves_out_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Watching(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    assert job.read() == ["a", "b"]

    def incomplete(paths: Iterable[Path]) -> Listing:
        listing = list_files(paths)
        del listing.files[str(tmp_path / "a")]
        return listing

    for restarts in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(enumerator, "list_files", incomplete)
            if restarts:
                job.start(job.checkpoint())
            else:
                assert job.read() == []
                job.checkpoint()
        assert job.read() == []
        job.checkpoint()


def test_files_removed_while_the_job_was_down_are_forgotten(tmp_path: Path) -> None:
    job = Watching(tmp_path)
    for n in range(20):
        (tmp_path / str(n)).write_text("x")
    assert len(job.read()) == 20
    taken = job.checkpoint()
    for path in tmp_path.iterdir():
        path.unlink()
    job.start(taken)
    assert job.read() == []
    assert size_of(job.snapshot()) < 100


def test_an_unmounted_directory_does_not_look_like_removed_files(tmp_path: Path) -> None:
    directory, aside = tmp_path / "in", tmp_path / "aside"
    directory.mkdir()
    job = Watching(directory)
    (directory / "a").write_text("one")
    assert job.read() == ["one"]
    job.checkpoint()
    directory.rename(aside)
    directory.mkdir()
    for restarted in (False, False, True, True):
        assert job.read() == []
        taken = job.checkpoint()
        if restarted:
            job.start(taken)
    directory.rmdir()
    aside.rename(directory)
    assert job.read() == []
    job.start(job.checkpoint())
    assert job.read() == []


def test_files_of_a_directory_that_was_made_again_are_forgotten_too(tmp_path: Path) -> None:
    directory = tmp_path / "in"
    directory.mkdir()
    job = Watching(directory)
    for n in range(100):
        (directory / str(n)).write_text("x")
    assert len(job.read()) == 100
    job.checkpoint()
    directory.rename(tmp_path / "archive")
    directory.mkdir()
    (directory / "a").write_text("one")
    assert job.read() == ["one"]
    for _ in range(3):
        assert job.read() == []
        taken = job.checkpoint()
    assert size_of(taken) < 100


def test_a_directory_that_cannot_be_read_does_not_look_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_text("one")
    job = Watching(tmp_path)
    assert job.read() == ["one"]
    scan = os.scandir

    def failing(path: Any) -> Any:
        if str(path).endswith("sub"):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return scan(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", failing)
        with pytest.raises(OSError, match="Input/output error"):
            job.read()
    assert job.read() == []


def test_positions_of_an_older_version_are_still_read(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    job = Watching(tmp_path)
    job.start(({str(tmp_path / "a"): ~1, str(tmp_path / "b"): 0, str(tmp_path / "gone"): ~7}, b""))
    assert job.read() == ["b", "c"]
    positions, state = job.checkpoint()
    assert positions == {}
    job.start((positions, state))
    assert job.read() == []


def test_at_most_once_knows_finished_files_without_the_state(tmp_path: Path) -> None:
    job = Watching(tmp_path, complete_positions=True)
    (tmp_path / "a").write_text("one")
    assert job.read() == ["one"]
    positions = job.enumerator.positions()
    assert positions == {str(tmp_path / "a"): ~3}
    job.start((positions, b""))
    assert job.read() == []
    # Removed, it is still needed: an older checkpoint may have it as unfinished.
    (tmp_path / "a").unlink()
    assert job.read() == []
    assert str(tmp_path / "a") in job.enumerator.positions()
    job.checkpoint()
    assert job.enumerator.positions() == {}


def test_files_that_changed_while_the_job_was_down_are_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = Watching(tmp_path)
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    assert job.read() == ["a", "b", "c"]
    taken = job.checkpoint()
    (tmp_path / "b").write_text("longer")
    (tmp_path / "c").write_text("longer")
    for _ in range(2):
        job.start(taken)
        assert job.read() == []
        taken = job.checkpoint()
    assert [record.getMessage()[: len(str(tmp_path)) + 18] for record in caplog.records] == [
        f"File {tmp_path / 'b'} and 1 more"
    ]


@pytest.mark.parametrize("seed", range(60))
def test_every_file_counts_once_whatever_happens_between(tmp_path: Path, seed: int) -> None:
    """Files come, go and use old names again; checkpoints complete late, or never; drivers die."""
    chance = random.Random(seed)
    job = Watching(tmp_path)
    paths = [tmp_path / letter for letter in "abcdef"]
    counted: list[str] = []
    written: list[str] = []
    pending: list[tuple[Snapshot, list[str]]] = []
    completed: tuple[Snapshot, list[str]] = (({}, b""), [])

    def is_known(path: Path) -> bool:
        (positions, state), _ = completed
        return str(path) in positions or finished_files._digest(str(path)) in state

    def write() -> None:
        free = [path for path in paths if not path.exists() and not is_known(path)]
        if free:
            written.append(f"version {len(written)}")
            chance.choice(free).write_text(written[-1])

    def remove() -> None:
        done = [path for path in paths if path.exists() and path.read_text() in completed[1]]
        if done:
            chance.choice(done).unlink()

    def look() -> None:
        counted.extend(job.read())

    def snapshot() -> None:
        pending.append((job.snapshot(), list(counted)))

    def complete() -> None:
        nonlocal completed
        if pending:
            index = chance.randrange(len(pending))
            completed = pending[index]
            del pending[: index + 1]
            job.complete(completed[0])

    def crash() -> None:
        pending.clear()
        counted[:] = completed[1]
        job.start(completed[0])

    steps = [write, remove, look, snapshot, complete, crash]
    for _ in range(150):
        chance.choices(steps, [6, 6, 8, 5, 5, 1])[0]()
    look()
    assert sorted(counted) == sorted(written)
    assert len(written) > len(paths)
