"""What was received, as the tasks read it."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.acknowledging import received_log
from penstock.connectors.acknowledging.received_log import ReceivedLog, read_received
from penstock.connectors.contracts.source import CHUNK_RECORDS
from penstock.errors import LostReceivedRecordsError

payloads = st.lists(st.binary(max_size=30), max_size=12)


def read(directory: Path, start: int, end: int) -> list[bytes]:
    return list(itertools.chain.from_iterable(read_received(directory, start, end)))


@settings(max_examples=25)
@given(appended=st.lists(payloads, min_size=1, max_size=8), data=st.data())
def test_any_range_returns_its_records(
    tmp_path_factory: pytest.TempPathFactory, appended: list[list[bytes]], data: st.DataObject
) -> None:
    log = ReceivedLog(tmp_path_factory.mktemp("log") / "a1", segment_bytes=100)
    for some in appended:
        log.append(some)
    everything = list(itertools.chain.from_iterable(appended))
    start = data.draw(st.integers(0, len(everything)))
    end = data.draw(st.integers(start, len(everything)))
    assert read(log.directory, start, end) == everything[start:end]
    log.trim(start)
    assert read(log.directory, start, len(everything)) == everything[start:]


def test_large_batches_become_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received_log, "_BLOCK_BYTES", 1000)
    log = ReceivedLog(tmp_path / "a1")
    records = [b"x" * (n % 700) for n in range(50)]
    log.append(records)
    assert read(log.directory, 0, 50) == records
    log.append([b""] * (CHUNK_RECORDS + 5))
    sizes = [len(chunk) for chunk in read_received(log.directory, 50, log.end)]
    assert sizes == [CHUNK_RECORDS, 5]


def test_reading_trimmed_segments_fails(tmp_path: Path) -> None:
    log = ReceivedLog(tmp_path / "a1", segment_bytes=1)
    for number in range(5):
        log.append([b"%d" % number])
    log.trim(3)
    assert len(list(log.directory.iterdir())) == 2
    with pytest.raises(LostReceivedRecordsError, match="record 2 is missing"):
        read(log.directory, 2, 5)


def test_corruption_is_reported(tmp_path: Path) -> None:
    log = ReceivedLog(tmp_path / "a1")
    log.append([b"hello", b"world"])
    (segment,) = log.directory.iterdir()
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    with pytest.raises(LostReceivedRecordsError, match="checksum"):
        read(log.directory, 0, 2)
    segment.write_bytes(data[:5])
    with pytest.raises(LostReceivedRecordsError, match="within a header"):
        read(log.directory, 0, 2)


def test_a_log_starts_empty(tmp_path: Path) -> None:
    ReceivedLog(tmp_path / "a1").append([b"old"])
    log = ReceivedLog(tmp_path / "a1")
    assert log.append([b"new"]) == 1
    assert read(log.directory, 0, 1) == [b"new"]
