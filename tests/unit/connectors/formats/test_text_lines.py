import gzip
import io
import itertools
import re
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.contracts.source import CHUNK_RECORDS
from penstock.connectors.formats import line_files
from penstock.connectors.formats.line_files import line_blocks, normalise
from penstock.connectors.formats.text_lines import TextLineFormat
from penstock.errors import ChangedFileError, TextDecodingError
from tests.unit.connectors.formats.reading import read_chunks, read_lists

UTF8 = TextLineFormat()

pieces = st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"bcd", "é€".encode(), b"\n\n"])
contents = st.lists(pieces, max_size=40).map(b"".join)


def java_lines(content: bytes) -> list[bytes]:
    lines = re.split(rb"\r\n|\n|\r", content)
    return lines[:-1] if not lines[-1] else lines


def read_all(path: Path, start: int, end: int, text_format: TextLineFormat = UTF8) -> list[str]:
    chunks = read_chunks(text_format, path, start, end)
    lists = [chunk.to_pylist() if isinstance(chunk, pa.Array) else chunk for chunk in chunks]
    assert lists == read_lists(text_format, path, start, end)
    return list(itertools.chain.from_iterable(lists))


@settings(max_examples=60, deadline=None)
@given(content=contents, cuts=st.lists(st.integers(0, 80), max_size=6), block=st.integers(1, 12))
def test_any_ranges_return_every_line_once(content: bytes, cuts: list[int], block: int) -> None:
    edges = sorted({0, len(content), *(cut for cut in cuts if cut < len(content))})
    lines: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_files, "_BLOCK_BYTES", block)
        patch.setattr(line_files, "_TAIL_BYTES", 3)
        for start, end in itertools.pairwise(edges):
            for _, whole in line_blocks(io.BytesIO(content), start, end):
                lines += normalise(whole)[:-1].split(b"\n")
    assert lines == java_lines(content)


@settings(max_examples=40, deadline=None)
@given(content=contents, start=st.integers(0, 60), length=st.integers(1, 60))
def test_a_range_holds_the_lines_that_start_in_it(content: bytes, start: int, length: int) -> None:
    end = min(start + length, len(content))
    starts = [0] if content else []
    starts += [match.end() for match in re.finditer(rb"\r\n|\n|\r", content)]
    expected = [at for at in starts if start <= at < end]
    lines = b"".join(
        normalise(block) for _, block in line_blocks(io.BytesIO(content), start, end) if start < end
    )
    assert lines.count(b"\n") == len(expected)


@settings(max_examples=40, deadline=None)
@given(content=contents, block=st.integers(1, 12))
def test_blocks_without_an_end_reach_the_end_of_the_file(content: bytes, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_files, "_BLOCK_BYTES", block)
        blocks = list(line_blocks(io.BytesIO(content), 0, None))
    assert b"".join(data for _, data in blocks) == content
    assert [at for at, _ in blocks] == [
        sum(len(data) for _, data in blocks[:index]) for index in range(len(blocks))
    ]


@settings(max_examples=40, deadline=None)
@given(content=contents)
def test_lines_become_strings(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "lines.txt"
    path.write_bytes(content)
    assert read_all(path, 0, len(content)) == [line.decode() for line in java_lines(content)]


def test_a_line_longer_than_a_block_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_text("x" * 5_000_000 + "\ny")
    assert read_all(path, 0, path.stat().st_size) == ["x" * 5_000_000, "y"]
    assert read_all(path, 1, path.stat().st_size) == ["y"]


def test_chunks_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "short-lines"
    path.write_text("\n" * 300_000)
    assert max(len(chunk) for chunk in read_chunks(UTF8, path, 0, 300_000)) == CHUNK_RECORDS
    assert len(read_all(path, 0, 300_000)) == 300_000


def test_bytes_that_are_no_text_are_named_by_file_and_offset(tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(b"good\n" + "é\n".encode() + b"b\xffd\n")
    with pytest.raises(TextDecodingError, match=r"bad.txt is not utf-8 text at byte 9") as raised:
        read_chunks(UTF8, path, 5, 12)
    assert raised.value.offset == 9


def test_another_charset_is_read_by_ranges_too(tmp_path: Path) -> None:
    path = tmp_path / "latin"
    path.write_bytes("é\nü\nx".encode("latin-1"))
    latin = TextLineFormat("ISO-8859-1")
    assert latin.splittable(path)
    assert read_all(path, 1, 5, latin) == ["ü", "x"]


def test_a_charset_with_wide_line_ends_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "wide"
    path.write_bytes("ab\r\nਊ\n".encode("utf-16"))
    wide = TextLineFormat("UTF-16")
    assert not wide.splittable(path)
    assert read_all(path, 0, path.stat().st_size, wide) == ["ab", "ਊ"]


def test_a_compressed_file_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\r\nthree"))
    assert not UTF8.splittable(path)
    assert read_all(path, 0, path.stat().st_size) == ["one", "two", "three"]


def test_a_file_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_text("one\n")
    with pytest.raises(ChangedFileError, match="it has 4 bytes, and 100 were to be read"):
        read_chunks(UTF8, path, 0, 100)


def test_an_unknown_charset_is_rejected_while_building() -> None:
    with pytest.raises(LookupError):
        TextLineFormat("no-such-charset")
