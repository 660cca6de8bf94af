"""An attempt that pauses between loading its rows and preparing or committing them.

Run by tests: `python -m tests.servers.postgres_zombie DSN DIRECTORY one|two`. It prints "loaded",
continues when it receives a line, and prints the outcome.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from time import sleep

from penstock.connectors.contracts.committing import commit_all
from penstock.connectors.postgres.database import Connection
from penstock.connectors.postgres.transactions import prepared
from penstock.connectors.postgres.transactions.committable import RowBatch
from tests.contracts.sink_harness import Attempt, Case
from tests.servers.postgres_sink_case import lines_sink


def main(dsn: str, directory: str, phases: str) -> None:
    load = prepared.load

    def stop_after(
        connection: Connection, target: str, root: Path, batches: Sequence[RowBatch]
    ) -> None:
        load(connection, target, root, batches)
        print("loaded", flush=True)
        sys.stdin.readline()

    prepared.load = stop_after
    sink = lines_sink(dsn).set_two_phase(phases == "two").build()
    attempt = Attempt(Case(sink, list), Path(directory))
    attempt.publish(["zombie"], [])
    try:
        committables = attempt.snapshot().committables
        commit_all(attempt.committer(), committables, retries=9, pause=sleep, step="the sink")
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    else:
        print("committed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
