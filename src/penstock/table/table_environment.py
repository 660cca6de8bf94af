"""The table environment, which converts tables to streams."""

from __future__ import annotations

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.data_stream import DataStream
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.errors import InvalidJobError
from penstock.table.datagen import datagen_source
from penstock.table.no_table_api import ExplainsMissingTableApi
from penstock.table.table import Table
from penstock.table.table_descriptor import TableDescriptor

__all__ = ["StreamTableEnvironment"]


class StreamTableEnvironment(ExplainsMissingTableApi):
    """A catalog of tables, which it converts to streams."""

    def __init__(self, stream_execution_environment: StreamExecutionEnvironment) -> None:
        self._env = stream_execution_environment
        self._tables: dict[str, Table] = {}

    @staticmethod
    def create(
        stream_execution_environment: StreamExecutionEnvironment | None = None,
        environment_settings: None = None,
    ) -> StreamTableEnvironment:
        """Create a table environment, on a new stream environment by default."""
        if environment_settings is not None:
            message = (
                "create() does not support environment_settings: pass them to "
                "StreamExecutionEnvironment.get_execution_environment()"
            )
            raise InvalidJobError(message)
        env = stream_execution_environment or StreamExecutionEnvironment.get_execution_environment()
        return StreamTableEnvironment(env)

    def create_temporary_table(
        self, path: str, descriptor: TableDescriptor, ignoreIfExists: bool = False
    ) -> None:
        """Create a table from a descriptor."""
        if path in self._tables:
            if ignoreIfExists:
                return
            message = f"table {path!r} exists already: use another name"
            raise InvalidJobError(message)
        if descriptor.schema is None:
            message = f"table {path!r} has no columns: add a schema() to its descriptor"
            raise InvalidJobError(message)
        source = datagen_source(path, descriptor.schema.row_type, descriptor.options)
        self._tables[path] = Table(path, source)

    def from_path(self, path: str) -> Table:
        """Return the table of that name."""
        if path not in self._tables:
            known = ", ".join(map(repr, self._tables)) or "none"
            message = f"there is no table {path!r}, only {known}; use create_temporary_table()"
            raise InvalidJobError(message)
        return self._tables[path]

    def to_data_stream(self, table: Table) -> DataStream:
        """Convert a table to a stream of rows, with the names of its columns."""
        if not isinstance(table, Table):
            message = f"to_data_stream() needs a table, such as from_path(); got {table!r}"
            raise InvalidJobError(message)
        return self._env.from_source(table.source, WatermarkStrategy.no_watermarks(), table.path)
