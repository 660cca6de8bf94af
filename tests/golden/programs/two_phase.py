"""A system that can prepare output and show it later: two directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.datastream.connectors import AlreadyCommitted, TransactionContext, TwoPhaseSink

Transaction = tuple[str, list[Any]]


class Shelf:
    """Prepared transactions wait in one directory, committed ones lie in another."""

    def __init__(self, directory: Path) -> None:
        self._prepared = directory / "prepared"
        self._committed = directory / "committed"

    def sink(self) -> TwoPhaseSink:
        """Make a sink that writes here."""
        return TwoPhaseSink(
            open=self._open,
            write=self._write,
            prepare=self._prepare,
            commit=self._commit,
            abort=self._abort,
        )

    def shown(self) -> list[str]:
        """Read what is committed."""
        files = sorted(self._committed.glob("*"))
        return [line for file in files for line in file.read_text().splitlines()]

    def waiting(self) -> list[str]:
        """Name what is prepared."""
        return sorted(file.name for file in self._prepared.glob("*"))

    def _open(self, context: TransactionContext) -> Transaction:
        return context.name, []

    def _write(self, transaction: Transaction, values: list[Any]) -> None:
        transaction[1].extend(values)

    def _prepare(self, transaction: Transaction) -> dict[str, Any]:
        name, values = transaction
        self._prepared.mkdir(parents=True, exist_ok=True)
        (self._prepared / name).write_text("".join(f"{value}\n" for value in values))
        return {"name": name, "values": len(values)}

    def _commit(self, committable: dict[str, Any]) -> None:
        name = committable["name"]
        self._committed.mkdir(parents=True, exist_ok=True)
        try:
            (self._prepared / name).rename(self._committed / name)
        except FileNotFoundError:
            if not (self._committed / name).exists():
                raise
            raise AlreadyCommitted from None

    def _abort(self, context: TransactionContext, transaction: Any, committable: Any) -> None:
        (self._prepared / context.name).unlink(missing_ok=True)
