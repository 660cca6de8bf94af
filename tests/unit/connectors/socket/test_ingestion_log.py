import itertools
import logging
import os
import random
import signal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.socket.ingestion_log import IngestionLog, read_log
from penstock.errors import CorruptIngestionLogError, LockedIngestionLogError


def lines_of(directory: Path, start: int, end: int) -> list[str]:
    return list(itertools.chain.from_iterable(read_log(directory, start, end)))


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
    segment = tmp_path / f"{0:020d}.segment"
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


def test_a_log_has_one_owner(tmp_path: Path) -> None:
    log = IngestionLog(tmp_path)
    with pytest.raises(LockedIngestionLogError, match="is in use"):
        IngestionLog(tmp_path)
    log.close()
    IngestionLog(tmp_path).close()


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_an_incomplete_last_block_is_truncated_wherever_it_ends(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("torn")
    *_, last = make(directory, 40)
    size_before = last.stat().st_size
    make(directory, 45)
    *_, newest = sorted(directory.glob("*.segment"))
    begin = size_before if newest == last else 0
    os.truncate(newest, data.draw(st.integers(begin, newest.stat().st_size - 1)))
    log = IngestionLog(directory)
    assert log.end == 40
    fill(log, 60)
    log.close()
    assert lines_of(directory, 0, 60) == numbered(0, 60)


def test_truncating_an_incomplete_block_is_logged(
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
