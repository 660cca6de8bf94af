"""A table, whose only use is to convert it to a stream."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.connectors.contracts.source import Source
from penstock.table.no_table_api import ExplainsMissingTableApi

__all__ = ["Table"]


@dataclass(frozen=True, slots=True)
class Table(ExplainsMissingTableApi):
    """A table of rows; `StreamTableEnvironment.to_data_stream` converts it to a stream."""

    path: str
    source: Source
