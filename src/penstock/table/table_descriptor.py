"""The description of a table: its connector, columns and options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import InvalidJobError
from penstock.table.no_table_api import AsksForTableApi
from penstock.table.schema import Schema

__all__ = ["TableDescriptor"]

_CONNECTOR = "datagen"


@dataclass(frozen=True, slots=True)
class TableDescriptor(AsksForTableApi):
    """Describes a table of generated rows, for `StreamTableEnvironment.create_temporary_table`."""

    schema: Schema | None
    options: Mapping[str, str]

    @staticmethod
    def for_connector(connector: str) -> TableDescriptor.Builder:
        """Begin the description of a table; `datagen` is the only connector."""
        if connector != _CONNECTOR:
            message = (
                f"tables of connector {connector!r} are not in penstock, only of {_CONNECTOR!r}: "
                "give a source of penstock.datastream.connectors to env.from_source()"
            )
            raise InvalidJobError(message)
        return TableDescriptor.Builder()

    def get_schema(self) -> Schema | None:
        """Return the columns, None if none were given."""
        return self.schema

    def get_options(self) -> dict[str, str]:
        """Return the options, the connector among them."""
        return {"connector": _CONNECTOR, **self.options}

    class Builder(AsksForTableApi):
        """Takes columns and options."""

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
            """Return the description."""
            return TableDescriptor(self._schema, dict(self._options))
