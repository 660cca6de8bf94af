"""An attempt that is stopped between loading its rows and preparing or committing them.

Run by tests: `python -m tests.servers.postgres_zombie DSN DIRECTORY one|two`. It says "loaded",
goes on when it is sent a line, and says in the end what became of it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from time import sleep

from penstock.connectors.committing import commit_all
from penstock.connectors.postgres import preparing
from penstock.connectors.postgres.database import Connection
from penstock.connectors.postgres.loading import RowBatch, load
from tests.contracts.sink_world import Attempt, Case
from tests.servers.postgres_sink_case import lines_sink


def main(dsn: str, directory: str, phases: str) -> None:
    def stop_behind(
        connection: Connection, target: str, root: Path, batches: Sequence[RowBatch]
    ) -> None:
        load(connection, target, root, batches)
        print("loaded", flush=True)
        sys.stdin.readline()

    setattr(preparing, "load", stop_behind)  # noqa: B010 - it is the module's, not its own
    sink = lines_sink(dsn).set_two_phase(phases == "two").build()
    attempt = Attempt(Case(sink, list), Path(directory))
    attempt.publish(["zombie"], [])
    try:
        committables = attempt.cut().committables
        commit_all(attempt.committer(), committables, retries=9, pause=sleep, step="the sink")
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    else:
        print("committed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
