import itertools
import logging
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.socket import generations
from penstock.connectors.socket.generations import Owner
from penstock.connectors.socket.ingestion_log import IngestionLog, read_log
from penstock.errors import CorruptIngestionLogError, FencedError, LockedIngestionLogError
from tests.unit.support import eventually

FIRST, SECOND, THIRD = (Owner("job", "instance", f"a{n}") for n in (1, 2, 3))


def lines_of(directory: Path, start: int, end: int) -> list[str]:
    path = generations.path_of(directory, generations.newest(directory))
    return list(itertools.chain.from_iterable(read_log(path, start, end)))


def numbered(start: int, end: int) -> list[str]:
    return [f"line {number}" for number in range(start, end)]


def fill(log: IngestionLog, end: int, block: int = 7) -> None:
    while log.end < end:
        lines = numbered(log.end, min(log.end + block, end))
        log.append([line.encode() for line in lines])


def make(directory: Path, end: int, *, segment_blocks: int = 4) -> list[Path]:
    log = IngestionLog(directory, segment_blocks=segment_blocks)
    fill(log, end)
    log.close()
    return sorted(directory.glob("*.segment"))


def test_a_log_that_cannot_be_closed_on_a_full_disk_may_be_opened_again(tmp_path: Path) -> None:
    log = IngestionLog(tmp_path)
    segment = generations.segment_path(tmp_path, 0, 1)
    segment.symlink_to("/dev/full")
    for write in (lambda: log.append([b"x"]), log.close):
        with pytest.raises(OSError, match="No space left"):
            write()
    segment.unlink()
    IngestionLog(tmp_path).close()


def test_any_range_can_be_read_from_another_process_while_the_log_is_open(tmp_path: Path) -> None:
    log = IngestionLog(tmp_path, segment_blocks=4)
    fill(log, 100)
    for start, end in itertools.combinations(range(0, 101, 9), 2):
        assert lines_of(tmp_path, start, end) == numbered(start, end)
    log.close()


def test_an_appended_line_is_synced_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = IngestionLog(tmp_path)
    ends = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: ends.append(log.end))
    log.append([b"x"])
    assert ends == [0, 0]
    assert log.end == 1
    log.close()


def test_a_reopened_log_continues_where_it_ended(tmp_path: Path) -> None:
    for end in (10, 11, 50, 90):
        make(tmp_path, end)
    log = IngestionLog(tmp_path)
    assert (log.begin, log.end, log.ended) == (0, 90, False)
    log.append_end()
    log.close()
    log = IngestionLog(tmp_path)
    assert log.ended
    log.close()
    assert lines_of(tmp_path, 0, 90) == numbered(0, 90)


def test_empty_lines_and_invalid_utf8_are_kept(tmp_path: Path) -> None:
    log = IngestionLog(tmp_path)
    log.append([b""])
    log.append([b"", b"", b"a\xff"])
    log.append([])
    log.close()
    assert lines_of(tmp_path, 0, 4) == ["", "", "", "a\ufffd"]


def test_a_log_is_open_in_one_job_only(tmp_path: Path) -> None:
    log = IngestionLog(tmp_path, FIRST)
    for other in (None, Owner("job", "another instance", "a9")):
        with pytest.raises(LockedIngestionLogError, match="is in use"):
            IngestionLog(tmp_path, other)
    log.close()
    IngestionLog(tmp_path).close()


def test_a_later_attempt_takes_the_log_over_from_one_that_hangs(tmp_path: Path) -> None:
    hung = IngestionLog(tmp_path, FIRST, segment_blocks=4)
    fill(hung, 40)
    log = IngestionLog(tmp_path, SECOND)
    assert (log.begin, log.end) == (0, 40)
    # It wakes up, appends to the segment it has open and to new ones, and even ends the log.
    hung.append([b"of a zombie"] * 3)
    fill(log, 60)
    for _ in range(9):
        hung.append([b"of a zombie"])
    hung.append_end()
    hung.trim(30)
    hung.close()
    assert lines_of(tmp_path, 30, 60) == numbered(30, 60)
    log.close()
    log = IngestionLog(tmp_path, THIRD)
    assert (log.end, log.ended) == (60, False)
    assert lines_of(tmp_path, 30, 60) == numbered(30, 60)
    log.close()


def test_what_a_zombie_appends_is_not_mixed_with_a_successor_that_has_not_appended_yet(
    tmp_path: Path,
) -> None:
    logs = [IngestionLog(tmp_path, FIRST)]
    fill(logs[0], 10)
    logs.append(IngestionLog(tmp_path, SECOND))
    logs[0].append([b"of a zombie"] * 5)
    # The second one has received nothing, and sleeps while the third one continues.
    logs.append(IngestionLog(tmp_path, THIRD))
    assert logs[2].end == 10
    fill(logs[2], 20)
    logs[1].append([b"of a zombie"] * 15)
    assert lines_of(tmp_path, 0, 20) == numbered(0, 20)
    for log in logs:
        log.close()
    log = IngestionLog(tmp_path)
    assert lines_of(tmp_path, 0, log.end) == numbered(0, 20)
    log.close()


def test_an_attempt_that_was_replaced_before_it_opened_the_log_is_fenced(tmp_path: Path) -> None:
    log = IngestionLog(tmp_path, SECOND)
    fill(log, 10)
    with pytest.raises(FencedError, match="a2"):
        IngestionLog(tmp_path, FIRST)
    log.close()
    with pytest.raises(FencedError, match="a2"):
        IngestionLog(tmp_path, FIRST)


def test_of_two_drivers_that_open_a_log_at_once_the_later_attempt_continues_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, 10)
    create = generations.create

    def slow(*args: Any) -> Any:
        """The other one opens the log, and is followed by another attempt, which cleans up."""
        monkeypatch.undo()
        IngestionLog(tmp_path, SECOND).close()
        fill(log := IngestionLog(tmp_path, THIRD), 20)
        log.close()
        return create(*args)

    monkeypatch.setattr(generations, "create", slow)
    with pytest.raises(FencedError, match="a3"):
        IngestionLog(tmp_path, FIRST)
    assert lines_of(tmp_path, 0, 20) == numbered(0, 20)


def test_a_log_of_a_version_without_generations_is_continued(tmp_path: Path) -> None:
    for segment in make(tmp_path, 50):
        segment.rename(tmp_path / segment.name.replace(".1.", "."))
    generations.path_of(tmp_path, 1).unlink()
    (tmp_path / "lock").touch()
    log = IngestionLog(tmp_path, FIRST)
    assert log.end == 50
    fill(log, 60)
    assert lines_of(tmp_path, 0, 60) == numbered(0, 60)
    log.trim(30)
    assert (log.begin, lines_of(tmp_path, 30, 60)) == (28, numbered(30, 60))
    log.close()


def test_files_of_older_generations_do_not_pile_up(tmp_path: Path) -> None:
    for attempt in range(1, 10):
        log = IngestionLog(tmp_path, Owner("job", "instance", f"a{attempt}"))
        fill(log, attempt * 5)
        log.trim(log.end)
        log.close()
    assert len(list(tmp_path.iterdir())) == 2


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_a_changed_byte_in_the_list_of_segments_is_an_error(
    sound: list[Path], data: st.DataObject
) -> None:
    path = generations.path_of(sound[0].parent, 1)
    before = path.read_bytes()
    content = bytearray(before)
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        with pytest.raises(CorruptIngestionLogError):
            IngestionLog(path.parent)
    finally:
        path.write_bytes(before)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_an_incomplete_last_block_is_ignored_wherever_it_ends(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("torn")
    make(directory, 40)
    *_, newest = make(directory, 45)
    os.truncate(newest, data.draw(st.integers(0, newest.stat().st_size - 1)))
    log = IngestionLog(directory)
    assert log.end == 40
    fill(log, 60)
    log.close()
    assert lines_of(directory, 0, 60) == numbered(0, 60)


def test_ignoring_an_incomplete_block_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (segment,) = make(tmp_path, 20)
    with segment.open("ab") as file:
        file.write(b"PIL1")
    with caplog.at_level(logging.WARNING):
        IngestionLog(tmp_path).close()
    assert "The last 4 of" in caplog.text


def test_a_last_block_of_zeros_is_incomplete_too(tmp_path: Path) -> None:
    (segment,) = make(tmp_path, 20)
    with segment.open("ab") as file:
        file.write(bytes(500))
    log = IngestionLog(tmp_path)
    assert log.end == 20
    log.close()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make(tmp_path_factory.mktemp("sound"), 60)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_changed_byte_is_an_error_and_left_as_it_is(
    sound: list[Path], data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(sound))
    before = path.read_bytes()
    content = bytearray(before)
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        with pytest.raises(CorruptIngestionLogError) as raised:
            IngestionLog(path.parent)
        assert raised.value.path == str(path)
        assert path.read_bytes() == content
    finally:
        path.write_bytes(before)


def test_an_incomplete_segment_in_the_middle_of_the_log_is_an_error(tmp_path: Path) -> None:
    first, *_ = make(tmp_path, 60)
    os.truncate(first, first.stat().st_size - 1)
    with pytest.raises(CorruptIngestionLogError, match="not the last one"):
        IngestionLog(tmp_path)


def test_a_missing_segment_is_an_error(tmp_path: Path) -> None:
    _, second, *_ = make(tmp_path, 80)
    second.unlink()
    with pytest.raises(CorruptIngestionLogError, match="records from 28 on are missing"):
        IngestionLog(tmp_path)


def test_reading_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    make(tmp_path, 10)
    with pytest.raises(CorruptIngestionLogError, match="record 10 is missing"):
        lines_of(tmp_path, 5, 11)


def test_trimming_deletes_only_whole_segments_below_the_position(tmp_path: Path) -> None:
    make(tmp_path, 100)
    log = IngestionLog(tmp_path)
    log.trim(55)
    assert log.begin == 28
    assert lines_of(tmp_path, 55, 100) == numbered(55, 100)
    with pytest.raises(CorruptIngestionLogError, match="record 0 is missing"):
        lines_of(tmp_path, 0, 60)
    log.trim(1000)
    assert len(list(tmp_path.glob("*.segment"))) == 1
    log.close()
    log = IngestionLog(tmp_path)
    assert log.end == 100
    log.close()


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(40))
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, seed: int) -> None:
    random_source = random.Random(seed)
    acknowledged = 0
    for _ in range(3):
        acknowledged = max(acknowledged, _killed_writer(tmp_path, random_source))
        log = IngestionLog(tmp_path)
        assert log.end >= acknowledged
        assert lines_of(tmp_path, 0, log.end) == numbered(0, log.end)
        log.close()


@pytest.mark.crash
def test_a_log_whose_writer_is_suspended_is_taken_over_and_stays_whole(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            log = IngestionLog(tmp_path, FIRST, segment_blocks=3)
            while True:
                fill(log, log.end + 50)
                os.write(writing, b"x" if log.end == 50 else b"")
        finally:
            os._exit(1)
    try:
        os.read(reading, 1)
        os.kill(child, signal.SIGSTOP)
        os.waitpid(child, os.WUNTRACED)
        log = IngestionLog(tmp_path, SECOND)
        taken_over = log.end
        assert taken_over >= 50
        before = _bytes_in(tmp_path, generation=1)
        os.kill(child, signal.SIGCONT)
        eventually(lambda: _bytes_in(tmp_path, generation=1) > before)
        for _ in range(20):
            log.append([b"of the successor"])
        assert lines_of(tmp_path, 0, taken_over) == numbered(0, taken_over)
        assert lines_of(tmp_path, taken_over, log.end) == ["of the successor"] * 20
        log.close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _bytes_in(directory: Path, generation: int) -> int:
    return sum(path.stat().st_size for path in directory.glob(f"*.{generation}.segment"))


def _killed_writer(directory: Path, random_source: random.Random) -> int:
    """Let a process write and report its end, kill it, and return the last end it reported."""
    reading, writing = os.pipe()
    block = random_source.choice([1, 10, 3000])
    child = os.fork()
    if child == 0:
        try:
            log = IngestionLog(directory, segment_blocks=3)
            while True:
                fill(log, log.end + block, block)
                os.write(writing, log.end.to_bytes(8, "big"))
        finally:
            os._exit(1)
    os.close(writing)
    reported = os.read(reading, 8)
    wanted = random_source.randrange(0, 12)
    for _ in range(wanted):
        reported = os.read(reading, 8)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(reading, 8):
        reported = more
    os.close(reading)
    return int.from_bytes(reported, "big")
