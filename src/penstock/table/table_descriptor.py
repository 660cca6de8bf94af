"""Table descriptors: connector, columns and options of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import InvalidJobError
from penstock.table.no_table_api import ExplainsMissingTableApi
from penstock.table.schema import Schema

__all__ = ["TableDescriptor"]

_CONNECTOR = "datagen"


@dataclass(frozen=True, slots=True)
class TableDescriptor(ExplainsMissingTableApi):
    """Describes a table of generated rows, for `StreamTableEnvironment.create_temporary_table`."""

    schema: Schema | None
    options: Mapping[str, str]

    @staticmethod
    def for_connector(connector: str) -> TableDescriptor.Builder:
        """Create a builder; `datagen` is the only supported connector."""
        if connector != _CONNECTOR:
            message = (
                f"the table connector {connector!r} is not supported, only {_CONNECTOR!r}: pass a "
                "source of penstock.datastream.connectors to env.from_source()"
            )
            raise InvalidJobError(message)
        return TableDescriptor.Builder()

    def get_schema(self) -> Schema | None:
        """Return the columns, None if there are none."""
        return self.schema

    def get_options(self) -> dict[str, str]:
        """Return the options, including the connector."""
        return {"connector": _CONNECTOR, **self.options}

    class Builder(ExplainsMissingTableApi):
        """Builds a table descriptor."""

        def __init__(self) -> None:
            self._schema: Schema | None = None
            self._options: dict[str, str] = {}

        def schema(self, schema: Schema) -> TableDescriptor.Builder:
            """Set the columns."""
            self._schema = schema
            return self

        def option(self, key: str, value: object) -> TableDescriptor.Builder:
            """Set one of the connector's options."""
            self._options[key] = str(value)
            return self

        def build(self) -> TableDescriptor:
            """Return the descriptor."""
            return TableDescriptor(self._schema, dict(self._options))
