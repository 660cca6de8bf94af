import itertools
import logging
import time
from pathlib import Path

import pytest

from penstock.common.time import Duration
from penstock.connectors.contracts.source import (
    Boundedness,
    EnumeratorContext,
    SourceEnumerator,
    SplitRange,
)
from penstock.connectors.files.enumerator import spread
from penstock.connectors.files.source import FileSource
from penstock.connectors.formats.text_lines import StreamFormat
from penstock.errors import MissingPathError

LINES = StreamFormat.text_line_format()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def watch(directory: Path, clock: Clock) -> tuple[FileSource, SourceEnumerator]:
    builder = FileSource.for_record_stream_format(LINES, str(directory))
    source = builder.monitor_continuously(Duration.of_seconds(10)).build()
    context = EnumeratorContext(1, directory, time.time, lambda: None, monotonic=clock)
    return source, source.enumerator(context)


def restore(enumerator: SourceEnumerator, taken: SourceEnumerator) -> None:
    """Start an enumerator from a snapshot of another one."""
    positions, state = taken.positions(), taken.snapshot_state()
    if state:
        enumerator.restore_state(state)
    enumerator.start(positions)


def read(source: FileSource, enumerator: SourceEnumerator) -> list[str]:
    ranges = itertools.chain.from_iterable(enumerator.plan(1000))
    chunks = itertools.chain.from_iterable(map(source.read_lists, ranges))
    return list(itertools.chain.from_iterable(chunks))


def test_a_missing_path_is_rejected_while_building() -> None:
    with pytest.raises(MissingPathError, match="'/no/such/place' does not exist"):
        FileSource.for_record_stream_format(LINES, "/no/such/place")


def test_a_path_that_was_removed_is_rejected_at_the_start(tmp_path: Path) -> None:
    directory = tmp_path / "in"
    directory.mkdir()
    _, enumerator = watch(directory, Clock())
    directory.rmdir()
    with pytest.raises(MissingPathError):
        enumerator.start({})


def test_other_schemes_are_rejected(tmp_path: Path) -> None:
    for path in ("ftp://host/x", "s3:///x", "s3:/bucket/x", "hdfs:/x", "abfs-x://c@a/x"):
        with pytest.raises(ValueError, match=f"path '{path}' is in no local .* mount it, or let"):
            FileSource.for_record_stream_format(LINES, path)
    FileSource.for_record_stream_format(LINES, f"file://{tmp_path}").build()


def test_hidden_files_and_directories_are_left_out(tmp_path: Path) -> None:
    for name in (".hidden", "_hidden", "_dir/a", "b/.c", "b/d", "a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    source, enumerator = watch(tmp_path, Clock())
    enumerator.start({})
    assert read(source, enumerator) == ["a", "b/d"]


def test_new_files_are_found_after_the_clock_was_set_back(tmp_path: Path) -> None:
    time_of_day, clock = Clock(), Clock()
    time_of_day.now = 100_000.0
    source = FileSource.for_record_stream_format(LINES, tmp_path)
    source.monitor_continuously(Duration.of_seconds(10))
    context = EnumeratorContext(1, tmp_path, time_of_day, lambda: None, monotonic=clock)
    enumerator = source.build().enumerator(context)
    enumerator.start({})
    (tmp_path / "new").write_text("x\n")
    time_of_day.now -= 3600
    clock.now += 10
    assert enumerator.next_poll() == 0.0
    assert [r.split for ranges in enumerator.plan(10) for r in ranges] == [str(tmp_path / "new")]


def test_new_files_are_picked_up_when_the_interval_has_passed(tmp_path: Path) -> None:
    clock = Clock()
    source, enumerator = watch(tmp_path, clock)
    assert source.boundedness() is Boundedness.CONTINUOUS_UNBOUNDED
    enumerator.start({})
    (tmp_path / "a").write_text("one")
    clock.now = 4.0
    assert enumerator.plan(10) == []
    assert enumerator.next_poll() == 6.0
    clock.now = 10.0
    assert read(source, enumerator) == ["one"]
    assert not enumerator.finished()


def test_a_finished_file_may_be_moved_away_before_a_restore(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    source, enumerator = watch(tmp_path, Clock())
    enumerator.start({})
    assert read(source, enumerator) == ["one"]
    (tmp_path / "a").unlink()
    (tmp_path / "b").write_text("two")
    source, again = watch(tmp_path, Clock())
    restore(again, enumerator)
    assert read(source, again) == ["two"]


def test_an_empty_file_may_be_moved_away_too(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    _, enumerator = watch(tmp_path, Clock())
    enumerator.start({})
    (tmp_path / "a").unlink()
    _, again = watch(tmp_path, Clock())
    restore(again, enumerator)
    assert again.plan(10) == []


def test_a_missing_half_read_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\nthree\n")
    _, enumerator = watch(tmp_path, Clock())
    enumerator.start({})
    enumerator.plan(1)
    (tmp_path / "a").unlink()
    _, again = watch(tmp_path, Clock())
    with pytest.raises(MissingPathError):
        restore(again, enumerator)


def test_a_changed_file_is_logged_once_and_not_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a").write_text("one\n")
    clock = Clock()
    source, enumerator = watch(tmp_path, clock)
    enumerator.start({})
    assert read(source, enumerator) == ["one"]
    (tmp_path / "a").write_text("one\ntwo\n")
    with caplog.at_level(logging.WARNING):
        for clock.now in (10.0, 20.0):
            assert enumerator.plan(10) == []
    (record,) = caplog.records
    assert f"File {tmp_path / 'a'} changed after it was read" in record.getMessage()


def test_a_static_set_does_not_grow_after_a_restore(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    source = FileSource.for_record_stream_format(LINES, tmp_path).build()
    context = EnumeratorContext(1, tmp_path, Clock(), lambda: None, monotonic=Clock())
    enumerator = source.enumerator(context)
    enumerator.start({})
    (tmp_path / "b").write_text("two")
    again = source.enumerator(context)
    restore(again, enumerator)
    assert len(again.plan(100)[0]) == 1
    assert again.finished()


def test_plans_follow_the_observed_length_of_records(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text(("x" * 9 + "\n") * 1000 + ("x" * 999 + "\n") * 1000)
    source = FileSource.for_record_stream_format(LINES, path).build()
    enumerator = source.enumerator(
        EnumeratorContext(1, tmp_path, Clock(), lambda: None, monotonic=Clock())
    )
    enumerator.start({})
    counts = []
    while not enumerator.finished():
        ranges = enumerator.plan(100)[0]
        counts.append(sum(len(chunk) for part in ranges for chunk in source.read_lists(part)))
        enumerator.observe(counts[-1], ranges)
    assert sum(counts) == 2000
    assert counts[-2] in range(90, 111)


def test_observing_ranges_without_a_line_widens_the_next_plan(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("x" * 100_000)
    source = FileSource.for_record_stream_format(LINES, path).build()
    enumerator = source.enumerator(
        EnumeratorContext(1, tmp_path, Clock(), lambda: None, monotonic=Clock())
    )
    enumerator.start({})
    enumerator.observe(1, [SplitRange(str(path), 0, 1)])
    for _ in range(60):
        if enumerator.finished():
            break
        enumerator.observe(0, enumerator.plan(1)[0])
    assert enumerator.finished()


def test_small_files_stay_whole_and_large_ones_are_divided() -> None:
    small = [(SplitRange(name, 0, 1000), True) for name in "abcd"]
    assert spread(small, 2) == [[part for part, _ in small[:2]], [part for part, _ in small[2:]]]
    large = SplitRange("e", 0, 1_000_000)
    assert spread([(large, True)], 2) == [
        [SplitRange("e", 0, 500_000)],
        [SplitRange("e", 500_000, 1_000_000)],
    ]
    assert spread([(large, False)], 2) == [[], [large]]
