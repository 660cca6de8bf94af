"""Format of text files: every line is a record."""
# ruff: noqa: D102 - the base class documents these methods

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.common.storage_url import Location
from penstock.common.typeinfo import TypeInformation, Types
from penstock.connectors.contracts.source import CHUNK_RECORDS, Chunk
from penstock.connectors.formats import line_files
from penstock.connectors.formats.input_file import InputFile
from penstock.connectors.formats.reader_format import ReaderFormat, in_chunks
from penstock.errors import TextDecodingError

# Their bytes cannot be divided at line ends without the bytes before.
_STATEFUL_CHARSETS = frozenset({"utf-7", "hz"})


class StreamFormat(ReaderFormat):
    """A format whose records are read one after the other."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> TextLineFormat:
        """Read lines of text; bytes that are not valid in the charset are an error."""
        return TextLineFormat(charset_name)

    def splittable(self, path: Path) -> bool:
        return not line_files.is_compressed(path)


class TextLineFormat(StreamFormat):
    """Lines of text, without their line ends."""

    def __init__(self, charset_name: str = "UTF-8") -> None:
        self.charset = codecs.lookup(charset_name).name
        self._has_plain_line_ends = (
            self.charset not in _STATEFUL_CHARSETS and "\n".encode(self.charset) == b"\n"
        )

    def type_info(self) -> TypeInformation:
        return Types.STRING()

    def splittable(self, path: Path) -> bool:
        return self._has_plain_line_ends and super().splittable(path)

    def read(self, file: InputFile, start: int, end: int) -> Iterator[Chunk]:
        if self.charset != "utf-8":
            yield from self.read_lists(file, start, end)
            return
        for offset, block in self._blocks(file, start, end):
            if not block.isascii():
                self._decode(file.path, offset, block)
            lines = _line_array(block)
            for first in range(0, len(lines), CHUNK_RECORDS):
                yield lines.slice(first, CHUNK_RECORDS)

    def read_lists(self, file: InputFile, start: int, end: int) -> Iterator[list[Any]]:
        for offset, block in self._blocks(file, start, end):
            text = self._decode(file.path, offset, block)
            if "\r" in text:
                text = text.replace("\r\n", "\n").replace("\r", "\n")
            lines = text.split("\n")
            if not lines[-1]:
                lines.pop()
            yield from in_chunks(lines)

    def _blocks(self, file: InputFile, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        if self._has_plain_line_ends:
            return line_files.read_blocks(file, start, end)
        return iter([(0, line_files.read_whole(file))])

    def _decode(self, path: Location, offset: int, block: bytes) -> str:
        try:
            return block.decode(self.charset)
        except UnicodeDecodeError as error:
            raise TextDecodingError(
                str(path), offset + error.start, self.charset, error.reason
            ) from None


def _line_array(block: bytes) -> pa.Array:
    """Make a string array of the lines of valid UTF-8, found with numpy."""
    block = line_files.normalise(block)
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
    count = len(ends)
    offsets = np.zeros(count + 1, np.int32)
    # Without line feeds, a line ends earlier by one byte for each line before it.
    np.subtract(ends, np.arange(count), out=offsets[1:], casting="unsafe")
    text = block.replace(b"\n", b"")
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))
