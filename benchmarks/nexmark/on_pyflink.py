"""PyFlink 2.3 in thread mode with the hashmap backend, in a separate venv; no checkpoints.

Where a late event joins two sessions, PyFlink 2.3 forgets what was counted in one of them (its
`merge_namespaces` puts the sources in the place of the target), so its sessions are checked with
one subtask on events that are in order. It is timed like the others, on the same events.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.memory import MemorySampler
from benchmarks.nexmark.contract import Timed, verified
from benchmarks.nexmark.events import Events
from benchmarks.pyflink_keyed import install, site_packages

CHECKED_IN_ORDER = ("q11",)
PROGRAM = Path(__file__).with_name("pyflink_main.py")


def run(query: str, check: dict[str, Any], events: dict[str, Any], parallelism: int) -> Timed:
    """Check a query on few events, then time it on many."""
    few, many = Events(**check), Events(**events)
    in_order = query in CHECKED_IN_ORDER
    if in_order:
        few = replace(few, delay_ms=0)
        few.generate()
    python = install(Path(many.cache))
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        MemorySampler() as memory,
    ):
        spec, result = Path(directory, "spec.json"), Path(directory, "result.json")
        request = {
            "query": query,
            "check": str(few.whole),
            "check_parallelism": 1 if in_order else parallelism,
            "events": str(many.whole),
            "parallelism": parallelism,
        }
        spec.write_text(json.dumps(request))
        # The interpreter inside Flink's JVM knows neither its venv nor where the queries are.
        found = os.pathsep.join([site_packages(python), str(PROGRAM.parents[2])])
        outside = {**os.environ, "PYTHONPATH": found}
        subprocess.run([str(python), str(PROGRAM), str(spec), str(result)], check=True, env=outside)
        answer = json.loads(result.read_text())
    verified(query, answer["rows"], few)
    return Timed(
        events=many.count,
        all_events=many.count,
        seconds=answer["seconds"],
        worker_mb=None,
        jvm_mb=memory.peak_jvm_mb,
    )
