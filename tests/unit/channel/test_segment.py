from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.channel.columns import RecordLayout, decoder_for, encoder_for
from penstock.channel.segment import Segment, SegmentWriter, read_slices
from penstock.errors import CorruptSegmentError


def written(path: Path, parts: list[tuple[int, list[Any]]], consumers: int = 2) -> Segment:
    writer = SegmentWriter(path, consumers)
    for consumer, records in parts:
        writer.write(consumer, encoder_for(None)(records))
    segment = writer.finish()
    assert segment is not None
    return segment


def records_of(path: Path, segment: Segment, consumer: int) -> list[Any]:
    decode = decoder_for(None)
    parts = read_slices(path, segment.slices[consumer])
    return [record for part in parts for record in decode(part.layout, part.columns)]


def test_each_consumer_gets_its_own_records_in_order(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "segment.arrow"
    segment = written(path, [(0, [1, 2]), (1, ["x"]), (0, [3])])
    assert records_of(path, segment, 0) == [1, 2, 3]
    assert records_of(path, segment, 1) == ["x"]
    assert (segment.rows, segment.size) == (4, path.stat().st_size)


def test_columns_that_arrow_has_divided_become_several_slices(tmp_path: Path) -> None:
    """Arrow divides columns of more than 2 GB."""
    path = tmp_path / "segment.arrow"
    writer = SegmentWriter(path, 1)
    texts = pa.chunked_array([["a", "b"], ["c"]])
    numbers = pa.chunked_array([[1], [2, 3]])
    distinct = pa.array([b"k", b"l"])
    key = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), distinct)
    columns = (RecordLayout.TUPLE, [texts, numbers])
    writer.write(0, columns, key, pa.array([7, 8, 9]))
    segment = writer.finish()
    assert segment is not None
    assert records_of(path, segment, 0) == [("a", 1), ("b", 2), ("c", 3)]
    slices = list(read_slices(path, segment.slices[0]))
    assert [k for s in slices if s.key is not None for k in s.key.to_pylist()] == [b"k", b"l", b"k"]
    assert [t for s in slices if s.times is not None for t in s.times.to_pylist()] == [7, 8, 9]


def test_nothing_written_leaves_no_file(tmp_path: Path) -> None:
    assert SegmentWriter(tmp_path / "segment.arrow", 2).finish() is None
    assert list(tmp_path.iterdir()) == []


def test_a_missing_segment_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "segment.arrow"
    segment = written(path, [(0, [1])])
    path.unlink()
    with pytest.raises(CorruptSegmentError, match=str(path)):
        records_of(path, segment, 0)


def test_a_segment_cut_short_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "segment.arrow"
    segment = written(path, [(0, [1]), (1, [2])])
    path.write_bytes(path.read_bytes()[:-1])
    assert records_of(path, segment, 0) == [1]
    with pytest.raises(CorruptSegmentError, match=rf"{path}.*it ends before byte"):
        records_of(path, segment, 1)


@pytest.mark.parametrize("at", [0, 100, -1])
def test_a_changed_byte_is_refused_by_name(tmp_path: Path, at: int) -> None:
    path = tmp_path / "segment.arrow"
    segment = written(path, [(0, [1, 2, 3])])
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)
    with pytest.raises(CorruptSegmentError, match=rf"{path}.*checksum"):
        records_of(path, segment, 0)
