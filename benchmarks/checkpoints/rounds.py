"""Change a share of a large state, take a checkpoint, again: what each one cost."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.checkpoints.large_state import KEYED_STEP, PIECES, LargeState, StateShape
from benchmarks.checkpoints.stopwatches import Stopwatches
from penstock.checkpoint.history import CheckpointRecord

VARIANTS = {
    # What a checkpoint holds beyond the one before it, or all of the state anew.
    ("rocksdb", "incremental"): {"execution.checkpointing.incremental": "true"},
    ("rocksdb", "full"): {"execution.checkpointing.incremental": "false"},
    ("hashmap", "incremental"): {},
    ("hashmap", "full"): {"penstock.state.snapshot": "synchronous"},
}
FIRST = "first"


def run(
    backend: str,
    variant: str,
    megabytes: float,
    value_bytes: int,
    shares: Sequence[float],
    rounds: int,
    directory: str,
) -> dict[str, Any]:
    """Build a state, then take `rounds` checkpoints for each share of it that changes."""
    shape = StateShape(backend, megabytes, value_bytes)
    shutil.rmtree(directory, ignore_errors=True)
    with Stopwatches() as watches:
        job = LargeState(shape, Path(directory), VARIANTS[backend, variant])
        try:
            began = time.monotonic()
            job.build()
            built = time.monotonic() - began
            print(f"built {shape.keys:,} keys in {built:.1f} s", flush=True)
            checkpoints = [_checkpoint(job, watches, FIRST, min(shares), shape.keys)]
            for share in sorted(shares):
                before = checkpoints[-1]["position"]
                for _ in range(rounds):
                    one = _checkpoint(job, watches, "change", share, before)
                    before = one["position"]
                    checkpoints.append(one)
        finally:
            job.cancel()
            shutil.rmtree(directory, ignore_errors=True)
    return {"keys": shape.keys, "build_s": built, "checkpoints": checkpoints}


def _checkpoint(
    job: LargeState, watches: Stopwatches, phase: str, share: float, before: int
) -> dict[str, Any]:
    """Ask for a checkpoint when most of the change is under way, so that its barrier meets data."""
    records = max(PIECES, round(job.shape.keys * share))
    end = job.change(records)
    job.wait_until_planned(end - records // PIECES)
    batches = len(job.keyed_reports())
    watches.take()
    record, position = job.checkpoint()
    parts = watches.take()
    job.wait_until_processed(end)
    snapshots = [one.phases.get("snapshot", 0.0) for one in job.keyed_reports()[batches:]]
    one = {
        "phase": phase,
        "share": share,
        "changed": position - before,
        "position": position,
        "snapshot_s": max(snapshots, default=0.0),
        "parts": parts,
        **facts_of(record),
    }
    print(
        f"{phase} {share:.2%}: {one['changed']:,} keys changed, {one['new_bytes'] / 1e6:,.1f} MB "
        f"of {one['full_bytes'] / 1e6:,.1f} MB in {one['duration_s']:.2f} s",
        flush=True,
    )
    return one


def facts_of(record: CheckpointRecord) -> dict[str, Any]:
    """What the job itself remembers of a checkpoint; times of the keyed step's slowest subtask."""
    stats = [s for o in record.operators if o.uid == KEYED_STEP for s in o.stats]
    return {
        "checkpoint": record.id,
        "duration_s": record.duration_s,
        "new_bytes": record.new_bytes,
        "full_bytes": record.full_bytes,
        "start_delay_s": max(s.start_delay_s for s in stats),
        "alignment_s": max(s.alignment_s for s in stats),
        "sync_s": max(s.sync_s for s in stats),
        "async_s": max(s.async_s for s in stats),
        "steps": _steps(record),
    }


def _steps(record: CheckpointRecord) -> dict[str, float]:
    """How many seconds after the trigger each thing happened; the last of its kind counts."""
    return {line.event.value: line.time - record.triggered for line in record.story}
