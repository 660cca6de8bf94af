"""Reads a range of a file as a task does."""

from pathlib import Path
from typing import Any

from penstock.connectors.contracts import input_settings
from penstock.connectors.contracts.source import Chunk
from penstock.connectors.formats.input_file import InputFile
from penstock.connectors.formats.reader_format import ReaderFormat

Settings = input_settings.InputSettings
DEFAULTS = input_settings.DEFAULT_INPUT_SETTINGS


def read_chunks(
    reader: ReaderFormat, path: Path, start: int, end: int, settings: Settings = DEFAULTS
) -> list[Chunk]:
    with InputFile(path, settings=settings) as file:
        return list(reader.read(file, start, end))


def read_lists(
    reader: ReaderFormat, path: Path, start: int, end: int, settings: Settings = DEFAULTS
) -> list[list[Any]]:
    with InputFile(path, settings=settings) as file:
        return list(reader.read_lists(file, start, end))
