"""ORC files for file sinks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from pyarrow import orc

from penstock.common.configuration import Configuration
from penstock.common.serialization import BulkWriter, BulkWriterFactory
from penstock.common.typeinfo import RowTypeInfo
from penstock.connectors.arrow_types import arrow_schema
from penstock.connectors.columnar_writer import ColumnarWriter, row_type_of
from penstock.errors import InvalidJobError

__all__ = ["OrcBulkWriters"]

_COMPRESSION = "orc.compress"
_CODECS = {"none": "uncompressed", "zlib": "zlib", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"}


class OrcBulkWriters:
    """Makes writers of ORC files."""

    @staticmethod
    def for_row_type(
        row_type: RowTypeInfo,
        writer_properties: Configuration | None = None,
        hadoop_config: Configuration | None = None,
    ) -> BulkWriterFactory:
        """Write rows of this type, with its field names as column names.

        Of both configurations ``orc.compress`` is known, by default ZLIB.
        """
        settings: dict[str, str] = {}
        for configuration in (hadoop_config, writer_properties):
            settings.update(configuration.to_dict() if configuration is not None else {})
        name = settings.pop(_COMPRESSION, "ZLIB")
        if settings or name.lower() not in _CODECS:
            known = ", ".join(codec.upper() for codec in _CODECS)
            message = (
                f"of the settings of ORC files only {_COMPRESSION} is known, one of {known}; "
                f"got {sorted(settings) or name!r}"
            )
            raise InvalidJobError(message)
        _refuse_times(arrow_schema(row_type_of(row_type, "ORC")))
        return _Factory(row_type, _CODECS[name.lower()])


def _refuse_times(schema: pa.Schema) -> None:
    for field in schema:
        if "time64" in str(field.type):
            message = (
                f"column {field.name!r}: ORC has nothing for a time of day; write it as a STRING "
                "or a LONG"
            )
            raise InvalidJobError(message)


class _Factory(BulkWriterFactory):
    def __init__(self, row_type: RowTypeInfo, compression: str) -> None:
        self._row_type = row_type
        self._compression = compression

    def create(self, file: BinaryIO) -> BulkWriter:
        writer = orc.ORCWriter(file, compression=self._compression)
        empty = arrow_schema(self._row_type).empty_table()
        written = False

        def write(table: pa.Table) -> None:
            nonlocal written
            writer.write(table)
            written = True

        def close() -> None:
            if not written:
                writer.write(empty)
            writer.close()

        return ColumnarWriter(self._row_type, write, close)

    def merge(self, pieces: Sequence[Path], file: BinaryIO) -> None:
        with orc.ORCWriter(file, compression=self._compression) as writer:
            for piece in pieces:
                source = orc.ORCFile(piece)
                for stripe in range(source.nstripes):
                    writer.write(pa.Table.from_batches([source.read_stripe(stripe)]))
