"""Lines of text, as the records of files."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.common.typeinfo import TypeInformation, Types
from penstock.connectors.line_blocks import normalised
from penstock.connectors.line_files import is_compressed, open_lines, read_blocks
from penstock.connectors.reader_format import ReaderFormat
from penstock.connectors.source import CHUNK_RECORDS, Chunk
from penstock.errors import TextDecodingError

__all__ = ["StreamFormat", "TextLineFormat"]

# Their bytes can be cut at line ends only with knowledge of what stood before.
_STATEFUL_CHARSETS = frozenset({"utf-7", "hz"})


class StreamFormat(ReaderFormat):
    """A format whose records are read one after the other."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> TextLineFormat:
        """Read lines of text; bytes that are no text in the charset are an error."""
        return TextLineFormat(charset_name)


class TextLineFormat(StreamFormat):
    """Lines of text, without their line ends."""

    def __init__(self, charset_name: str = "UTF-8") -> None:
        self.charset = codecs.lookup(charset_name).name
        self._cuttable = (
            self.charset not in _STATEFUL_CHARSETS and "\n".encode(self.charset) == b"\n"
        )

    def type_info(self) -> TypeInformation:
        """Return STRING."""
        return Types.STRING()

    def splittable(self, path: Path) -> bool:
        """Tell that only plain files in charsets with one-byte line ends can be cut."""
        return self._cuttable and not is_compressed(path)

    def read(self, path: Path, start: int, end: int) -> Iterator[Chunk]:
        """Give the lines as Arrow arrays if the charset is UTF-8, else as lists."""
        if self.charset != "utf-8":
            yield from self.read_lists(path, start, end)
            return
        for offset, block in self._blocks(path, start, end):
            if not block.isascii():
                self._decode(path, offset, block)
            lines = _line_array(block)
            for first in range(0, len(lines), CHUNK_RECORDS):
                yield lines.slice(first, CHUNK_RECORDS)

    def read_lists(self, path: Path, start: int, end: int) -> Iterator[list[Any]]:
        """Give the lines as lists, without the way through Arrow."""
        for offset, block in self._blocks(path, start, end):
            text = self._decode(path, offset, block)
            if "\r" in text:
                text = text.replace("\r\n", "\n").replace("\r", "\n")
            lines = text.split("\n")
            if not lines[-1]:
                lines.pop()
            if len(lines) <= CHUNK_RECORDS:
                yield lines
                continue
            for first in range(0, len(lines), CHUNK_RECORDS):
                yield lines[first : first + CHUNK_RECORDS]

    def _blocks(self, path: Path, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        if self._cuttable:
            yield from read_blocks(path, start, end)
            return
        with open_lines(path) as file:
            yield 0, file.read()

    def _decode(self, path: Path, offset: int, block: bytes) -> str:
        try:
            return block.decode(self.charset)
        except UnicodeDecodeError as error:
            raise TextDecodingError(
                str(path), offset + error.start, self.charset, error.reason
            ) from None


def _line_array(block: bytes) -> pa.Array:
    """Make a string array of valid UTF-8, with numpy finding the lines."""
    block = normalised(block)
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
    count = len(ends)
    offsets = np.zeros(count + 1, np.int32)
    # In the text without line feeds a line ends as many bytes earlier as lines came before.
    np.subtract(ends, np.arange(count), out=offsets[1:], casting="unsafe")
    text = block.replace(b"\n", b"")
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.StringArray.from_buffers(count, buffers[1], buffers[2])
