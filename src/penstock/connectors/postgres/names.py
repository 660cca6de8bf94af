"""Names of tables and columns in SQL, exactly as the database's catalog has them."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["listed", "quoted", "quoted_table", "quoted_text"]


def quoted(name: str) -> str:
    """Quote a name: upper case stays upper case, and nothing in it is SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted_table(table: str) -> str:
    """Quote ``table`` or ``schema.table``."""
    return ".".join(map(quoted, table.split(".", 1)))


def quoted_text(text: str) -> str:
    """Quote a text where SQL takes no parameters."""
    return "'" + text.replace("'", "''") + "'"


def listed(names: Iterable[str]) -> str:
    """Quote names for a list in SQL."""
    return ", ".join(map(quoted, names))
