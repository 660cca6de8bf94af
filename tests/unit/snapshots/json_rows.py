"""Rows of states as JSON has them, made of whole tables: what look-ups are compared with."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.snapshots.json_values import json_values


def json_rows(table: pa.Table) -> list[dict[str, Any]]:
    columns = {name: json_values(table.column(name)) for name in table.column_names}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
