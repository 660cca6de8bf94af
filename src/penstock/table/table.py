"""A table, which can become a stream and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.connectors.source import Source
from penstock.table.no_table_api import AsksForTableApi

__all__ = ["Table"]


@dataclass(frozen=True, slots=True)
class Table(AsksForTableApi):
    """Rows to be read; `StreamTableEnvironment.to_data_stream` makes a stream of them."""

    path: str
    source: Source
