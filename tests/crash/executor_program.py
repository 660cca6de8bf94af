"""The ledger job on two executor processes, one of which is killed: run by the test beside it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.crash.ledger import assert_one_execution, run_ledger

RECORDS = 3_000


def kill_my_executor(mark: Path) -> None:
    """Kill the JVM of this worker, once: the worker's parent is the daemon it forked from."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    daemon = Path(f"/proc/{os.getppid()}/status").read_text()
    executor = next(line for line in daemon.splitlines() if line.startswith("PPid:"))
    os.kill(int(executor.split()[1]), signal.SIGKILL)


def main(mark: Path) -> None:
    def on_record(n: int) -> None:
        if n == 1700:
            kill_my_executor(mark)

    settings = {"spark.master": "local-cluster[2,1,1024]"}
    lines, counters, _ = run_ledger(RECORDS, on_record=on_record, settings=settings)
    assert_one_execution(lines, counters, RECORDS)
    print(f"killed {mark.exists()}, {len(lines)} lines, one execution each")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
