"""Logs of submitted jobs: trimmed while they are written, and read in pieces."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from penstock.serve.submission.logs.job_logs import MOST_BYTES, JobLogs
from penstock.serve.submission.logs.trimmer import trim, trimming
from penstock.serve.submission.records import SubmissionDir
from tests.unit.support import eventually

LINES = [b"line %07d" % n for n in range(40_000)]
TEXT = b"".join(line + b"\n" for line in LINES)


@pytest.fixture
def logs(tmp_path: Path) -> JobLogs:
    directory = SubmissionDir(tmp_path)
    directory.start(1).path.mkdir(parents=True)
    return JobLogs(directory)


@pytest.fixture
def log(logs: JobLogs) -> Path:
    return logs.directory.start(1).log


def blocks(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_pieces_are_the_whole_log_and_each_has_whole_lines(logs: JobLogs, log: Path) -> None:
    log.write_bytes(TEXT)
    offset, pieces = 0, []
    while offset < len(TEXT):
        piece = logs.read(log, offset, 10_000)
        assert (piece.offset, piece.size) == (offset, len(TEXT))
        assert piece.text.endswith("\n")
        pieces.append(piece.text)
        offset = piece.next
    assert "".join(pieces).encode() == TEXT
    assert b"".join(logs.stream(log)) == TEXT


def quiet(log: Path) -> None:
    """Let the last write be long ago."""
    os.utime(log, (time.time() - 60,) * 2)


def test_what_is_appended_is_read_from_where_the_last_piece_ended(logs: JobLogs, log: Path) -> None:
    log.write_text("a\nb")
    quiet(log)
    first = logs.read(log, 0)
    assert first.text == "a\nb"
    assert logs.read(log, first.next).text == ""
    with log.open("a") as file:
        file.write("c\n")
    assert logs.read(log, first.next).text == "c\n"


def test_a_negative_offset_is_the_end_of_the_log_from_its_first_whole_line(
    logs: JobLogs, log: Path
) -> None:
    log.write_bytes(b"first\nsecond\nthird\n")
    assert logs.read(log, -9).text == "third\n"
    assert logs.read(log, -10_000).text == "first\nsecond\nthird\n"
    assert logs.tail(log, 2) == "second\nthird"


def test_an_offset_behind_the_end_begins_again(logs: JobLogs, log: Path) -> None:
    log.write_text("short\n")
    assert logs.read(log, 1000).text == "short\n"


def test_a_piece_has_a_longest_length_and_a_long_line_is_cut(logs: JobLogs, log: Path) -> None:
    log.write_bytes(b"x" * (2 * MOST_BYTES))
    quiet(log)
    assert len(logs.read(log, 0, 10 * MOST_BYTES).text) == MOST_BYTES
    assert b"".join(logs.stream(log)) == b"x" * (2 * MOST_BYTES)


def test_bytes_that_are_no_text_are_shown(logs: JobLogs, log: Path) -> None:
    log.write_bytes(b"\xff\0ok\n")
    assert logs.read(log, 0).text == "\ufffd\0ok\n"


def test_credentials_of_the_job_are_hidden_whatever_prints_them(logs: JobLogs, log: Path) -> None:
    logs.directory.settings.write_text("penstock.storage.s3.secret-access-key: hunter22\n")
    log.write_text("my key is hunter22\nkafka://u:pass@host --password=x\n")
    text = logs.read(log, 0).text
    assert text == "my key is ***\nkafka://u:***@host --password=***\n"
    assert b"hunter22" not in b"".join(logs.stream(log))


SECRETS = b"""key supersecretvalue99 twice: supersecretvalue99
url=postgresql://me:hunter2pass@db/x and Bearer abcdefgh12345678
{"password": "open sesame", "user": "me"}
caf\xc3\xa9 token=t\xc3\xb6ken-\xff-end. next\n"""
SHOWN = """key *** twice: ***
url=postgresql://me:***@db/x and Bearer ***
{"password": "***", "user": "me"}
caf\u00e9 token=*** next\n"""
HINTS = ("secretvalue", "value9", "hunter", "ter2", "cdefgh", "5678", "sesame", "ken-")


@pytest.mark.parametrize("length", [1, 2, 7, 40])
def test_no_cut_shows_a_part_of_a_credential(logs: JobLogs, log: Path, length: int) -> None:
    secret = "penstock.storage.s3.secret-access-key: supersecretvalue99\n"
    logs.directory.settings.write_text(secret)
    log.write_bytes(SECRETS)
    offset, shown = 0, ""
    while offset < len(SECRETS):
        piece = logs.read(log, offset, length)
        assert piece.next > offset
        shown += piece.text
        offset = piece.next
    assert shown.replace("\ufffd\ufffd", "\u00e9") == SHOWN
    every = [logs.read(log, offset, length).text for offset in range(len(SECRETS))]
    assert not [hint for hint in HINTS if any(hint in text for text in every)]
    alone = "".join(text for text in every if length == 1)
    assert not [hint for hint in HINTS if hint in alone]
    assert b"".join(logs.stream(log)).decode() == SHOWN


def test_credentials_in_a_line_that_is_longer_than_any_piece_are_hidden(
    logs: JobLogs, log: Path
) -> None:
    filler = b"." * 100_000
    text = b"".join(b"pwd=%b%06d " % (b"s" * 20, n) + filler for n in range(30)) + b"\n"
    log.write_bytes(text)
    kept = b"".join(logs.stream(log))
    assert kept == b"".join(b"pwd=*** " + filler for _ in range(30)) + b"\n"
    at = text.index(b"000015")
    for offset in range(at - 25, at + 7):
        assert b"00" not in logs.read(log, offset, 10).text.encode()
        assert "s" not in logs.read(log, offset, 10).text.replace("pass", "")


def test_a_line_that_is_being_written_is_shown_when_it_is_complete(
    logs: JobLogs, log: Path
) -> None:
    log.write_text("first\nurl=postgresql://me:hunt")
    assert logs.read(log, 0).text == "first\n"
    assert logs.read(log, 6).text == ""
    assert logs.tail(log, 1).startswith("url=")
    with log.open("a") as file:
        file.write("er2@db\n")
    assert logs.read(log, 6).text == "url=postgresql://me:***@db\n"


def test_what_a_trim_has_left_of_a_credential_is_not_shown(logs: JobLogs, log: Path) -> None:
    line = b"password=" + b"s" * 10_000 + b"\n"
    log.write_bytes(line * 30)
    trim(log, 100_000)
    begin = logs.files()[0].begin
    assert begin % len(line) > 10, "the first line is cut"
    for offset in (0, begin, begin + 1, begin + 50):
        assert "ss" not in logs.read(log, offset, 500).text.replace("password", "")
    assert b"sss" not in b"".join(logs.stream(log))


@pytest.mark.parametrize("length", [0, -1, -5, 10**15])
def test_a_length_is_at_least_one_byte_and_at_most_a_megabyte(
    logs: JobLogs, log: Path, length: int
) -> None:
    log.write_bytes(b"x\n" * MOST_BYTES)
    assert 1 <= len(logs.read(log, 0, length).text) <= MOST_BYTES


def test_an_empty_log_and_no_log_are_read(logs: JobLogs, log: Path) -> None:
    assert logs.files() == []
    log.touch()
    assert [(f.name, f.size) for f in logs.files()] == [("start-1.log", 0)]
    assert logs.read(log, 0).text == ""
    assert list(logs.stream(log)) == []


@pytest.mark.parametrize("name", ["start-2.log", "../start-1.log", "", "/etc/passwd", "start-1"])
def test_a_name_that_is_not_listed_is_no_log(logs: JobLogs, log: Path, name: str) -> None:
    log.touch()
    assert logs.find("start-1.log") == log
    assert logs.find(name) is None


# -- trimming -----------------------------------------------------------------------------------


def test_a_trimmed_log_keeps_its_end_and_its_offsets(logs: JobLogs, log: Path) -> None:
    log.write_bytes(TEXT)
    trim(log, 200_000)
    assert blocks(log) <= 200_000
    (file,) = logs.files()
    assert file.size == len(TEXT)
    assert len(TEXT) - 110_000 < file.begin <= len(TEXT) - 100_000
    kept = b"".join(logs.stream(log))
    # From the first whole line: of the one before it a part is left.
    assert kept == TEXT[TEXT.index(b"\n", file.begin) + 1 :]
    piece = logs.read(log, 0)
    assert piece.offset >= file.begin
    assert piece.text.splitlines()[0].encode() in LINES
    assert logs.read(log, len(TEXT) - 26).text.encode() == TEXT[-26:]


def test_a_small_log_is_not_trimmed(log: Path) -> None:
    log.write_bytes(TEXT)
    trim(log, 1 << 20)
    assert log.read_bytes() == TEXT
    trim(log.with_name("none"), 1)


def test_a_file_system_without_holes_begins_the_log_again(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.serve.submission.logs.trimmer._punch", lambda log, length: False)
    with log.open("ab", buffering=0) as writer:
        writer.write(TEXT)
        trim(log, 1000)
        writer.write(b"next\n")
    assert log.read_bytes() == b"next\n"


def test_no_line_is_lost_or_torn_while_a_log_is_written_and_trimmed(
    logs: JobLogs, log: Path
) -> None:
    read: list[str] = []
    with trimming(log, 100_000, every_s=0.001), log.open("ab", buffering=0) as writer:
        offset = 0
        for first in range(0, len(LINES), 1000):
            writer.write(b"".join(line + b"\n" for line in LINES[first : first + 1000]))
            piece = logs.read(log, offset)
            offset = piece.next
            read.append(piece.text)
            time.sleep(0.001)
        eventually(lambda: blocks(log) <= 100_000)
    assert "".join(read).encode() == TEXT
