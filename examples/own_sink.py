"""A custom sink: orders into SQLite, exactly once, even though the job fails several times.

    python examples/own_sink.py DIRECTORY

SQLite cannot prepare a transaction and commit it later. So orders are first staged in a separate
table, under the name of their transaction; a commit moves them and records that in a ledger.
"""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import (
    AlreadyCommitted,
    DataGeneratorSource,
    RateLimiterStrategy,
    RetryLater,
    TransactionContext,
    TwoPhaseSink,
)

TABLES = """CREATE TABLE IF NOT EXISTS orders (value TEXT);
            CREATE TABLE IF NOT EXISTS staged (name TEXT, value TEXT);
            CREATE TABLE IF NOT EXISTS ledger (name TEXT PRIMARY KEY)"""
Staged = tuple[sqlite3.Connection, str]


def sqlite_sink(database: Path) -> TwoPhaseSink:
    def begin() -> sqlite3.Connection:
        connection = sqlite3.connect(database, timeout=60)
        connection.executescript(TABLES)
        connection.execute("BEGIN IMMEDIATE")
        return connection

    def stage(context: TransactionContext) -> Staged:
        return begin(), context.name

    def write(staged: Staged, values: list[str]) -> None:
        rows = ((staged[1], value) for value in values)
        staged[0].executemany("INSERT INTO staged VALUES (?, ?)", rows)

    def prepare(staged: Staged) -> str:
        staged[0].commit()
        staged[0].close()
        return staged[1]

    def commit(name: str) -> None:
        try:
            with closing(begin()) as connection, connection:
                if connection.execute("SELECT 1 FROM ledger WHERE name = ?", [name]).fetchone():
                    raise AlreadyCommitted
                move = "INSERT INTO orders SELECT value FROM staged WHERE name = ? ORDER BY rowid"
                if connection.execute(move, [name]).rowcount == 0:
                    raise LookupError(name)  # neither staged nor committed
                connection.execute("DELETE FROM staged WHERE name = ?", [name])
                connection.execute("INSERT INTO ledger VALUES (?)", [name])
        except sqlite3.OperationalError as error:
            raise RetryLater from error

    def abort(context: TransactionContext, staged: Staged | None, committable: str | None) -> None:
        if staged is not None:
            staged[0].close()
        with closing(begin()) as connection, connection:
            connection.execute("DELETE FROM staged WHERE name = ?", [context.name])

    return TwoPhaseSink(open=stage, write=write, prepare=prepare, commit=commit, abort=abort)


def main(directory: Path, orders: int = 600) -> None:
    def order(number: int) -> str:
        if number > orders // 2 and not (directory / "stumbled").exists():
            (directory / "stumbled").touch()
            raise OSError(number)
        return f"order {number}"

    directory.mkdir(parents=True, exist_ok=True)
    settings = {"execution.checkpointing.dir": str(directory / "checkpoints")}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.enable_checkpointing(500)
    source = DataGeneratorSource(int, orders, RateLimiterStrategy.per_second(200), Types.LONG())
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    stream.map(order, Types.STRING()).sink_to(sqlite_sink(directory / "orders.db"))
    env.execute("own sink")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "own-sink"))
