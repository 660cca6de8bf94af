"""Reads the catalog entry of the sink's table, and checks rows against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.connectors.postgres.database import Connection
from penstock.connectors.postgres.names import quoted_table
from penstock.errors import UnsuitableTableError


@dataclass(frozen=True, slots=True)
class Column:
    """A writable column, as the catalog describes it."""

    name: str
    type: str
    required: bool
    """Whether it is NOT NULL without a default."""
    nullable: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table, as the catalog describes it."""

    name: str
    target: str
    """Its quoted name with the schema, independent of the search path."""
    columns: tuple[Column, ...]
    unique: tuple[frozenset[str], ...]
    """The columns of each unique index that ON CONFLICT can use."""

    def check_columns(self, columns: Sequence[str]) -> None:
        """Reject columns that do not exist, and the lack of required ones."""
        self.check_known(columns)
        missing = [c.name for c in self.columns if c.required and c.name not in columns]
        if missing:
            reason = (
                f"column {missing[0]!r} is NOT NULL without a default, but the rows only have "
                f"{', '.join(columns)}"
            )
            raise UnsuitableTableError(self.name, reason)

    def check_known(self, columns: Sequence[str]) -> None:
        """Reject columns that do not exist or cannot be written."""
        known = [column.name for column in self.columns]
        for name in columns:
            if name not in known:
                reason = f"it has no writable column {name!r}, only {', '.join(known)}"
                raise UnsuitableTableError(self.name, reason)

    def check_keys(self, keys: Sequence[str]) -> None:
        """Reject key columns that do not identify a row."""
        self.check_known(keys)
        known = {column.name: column for column in self.columns}
        for name in keys:
            if known[name].nullable:
                reason = (
                    f"key column {name!r} may be NULL, and NULLs are never equal; "
                    f"ALTER TABLE {self.target} ALTER COLUMN … SET NOT NULL"
                )
                raise UnsuitableTableError(self.name, reason)
        if frozenset(keys) not in self.unique:
            reason = (
                f"it has no primary key or unique index on ({', '.join(keys)}), "
                "which upserts need; create one"
            )
            raise UnsuitableTableError(self.name, reason)

    def check_rows(
        self, columns: Sequence[str] | None, width: int, arrays: Sequence[int]
    ) -> tuple[str, ...]:
        """Reject rows that do not match, and return the names of their columns.

        ``arrays`` are positions at which rows have arrays.
        """
        names = tuple(c.name for c in self.columns)[:width] if columns is None else tuple(columns)
        if len(names) != width:
            reason = (
                f"the rows have {width} values, but it has {len(self.columns)} writable columns"
            )
            raise UnsuitableTableError(self.name, reason)
        self.check_columns(names)
        types = {column.name: column.type for column in self.columns}
        for at in arrays:
            if types[names[at]] in ("json", "jsonb"):
                reason = (
                    f"column {names[at]!r} is {types[names[at]]}, but the rows have lists there, "
                    f"which are written as arrays; set_json_columns({names[at]!r})"
                )
                raise UnsuitableTableError(self.name, reason)
        return names


def describe_table(connection: Connection, table: str) -> Table:
    """Read a table from the catalog.

    Raises:
        UnsuitableTableError: if it does not exist, or the role may not insert into it.
    """
    row = connection.execute(
        "SELECT c.oid, format('%%I.%%I', n.nspname, c.relname), "
        "has_any_column_privilege(c.oid, 'INSERT') FROM pg_class c, pg_namespace n "
        "WHERE c.oid = to_regclass(%s) AND n.oid = c.relnamespace",
        (quoted_table(table),),
    ).fetchone()
    if row is None:
        reason = "there is no such table in this database (names are case-sensitive)"
        raise UnsuitableTableError(table, reason)
    oid, target, may_insert = row
    if not may_insert:
        raise UnsuitableTableError(table, "the role of the dsn may not INSERT into it")
    columns = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod), "
        "attnotnull AND NOT atthasdef AND attidentity = '', NOT attnotnull "
        "FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped "
        "AND attgenerated = '' AND attidentity <> 'a' ORDER BY attnum",
        (oid,),
    ).fetchall()
    indexes = connection.execute(
        "SELECT array_agg(a.attname::text) FROM pg_index i, pg_attribute a "
        "WHERE i.indrelid = %s AND i.indisunique AND i.indimmediate AND i.indpred IS NULL "
        "AND i.indexprs IS NULL AND a.attrelid = i.indrelid "
        "AND a.attnum = ANY(i.indkey[0:i.indnkeyatts - 1]) GROUP BY i.indexrelid",
        (oid,),
    ).fetchall()
    return Table(
        table,
        target,
        tuple(Column(*column) for column in columns),
        tuple(frozenset(names) for (names,) in indexes),
    )
