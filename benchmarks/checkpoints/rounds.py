"""Repeatedly change a share of a large state and take a checkpoint: the cost of each."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.checkpoints.large_state import KEYED_STEP, PIECES, LargeState, StateShape
from benchmarks.checkpoints.measured import CHANGE, SETTLING, CheckpointCost
from benchmarks.checkpoints.stopwatches import Stopwatches
from penstock.checkpoint.history import CheckpointStats

SETTLING_SHARE = 0.005
INCREMENTAL = "incremental"
FULL = "full"
VARIANTS: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("rocksdb", INCREMENTAL): {"execution.checkpointing.incremental": "true"},
    ("rocksdb", FULL): {"execution.checkpointing.incremental": "false"},
    # A changelog is incremental by itself; folded at each barrier it is written as a whole.
    ("hashmap", INCREMENTAL): {},
    ("hashmap", FULL): {"penstock.state.snapshot": "synchronous"},
}


def run(
    backend: str,
    variant: str,
    megabytes: float,
    value_bytes: int,
    settling: int,
    shares: Sequence[tuple[float, int]],
    directory: str,
) -> dict[str, Any]:
    """Build a state; for each share of its keys, change so many and take a checkpoint, n times.

    The first checkpoints are not counted: a backend is still busy with what the build left.
    """
    shape = StateShape(backend, megabytes, value_bytes)
    shutil.rmtree(directory, ignore_errors=True)
    with Stopwatches() as watches:
        job = LargeState(shape, Path(directory), VARIANTS[backend, variant])
        try:
            began = time.monotonic()
            job.build()
            built = time.monotonic() - began
            print(f"built {shape.keys:,} keys in {built:.1f} s", flush=True)
            checkpoints = [_checkpoint(job, watches, SETTLING, SETTLING_SHARE, 0)]
            for _ in range(settling):
                before = checkpoints[-1].position
                checkpoints.append(_checkpoint(job, watches, SETTLING, SETTLING_SHARE, before))
            for share, rounds in sorted(shares):
                for _ in range(rounds):
                    before = checkpoints[-1].position
                    checkpoints.append(_checkpoint(job, watches, CHANGE, share, before))
        finally:
            job.cancel()
            shutil.rmtree(directory, ignore_errors=True)
    return {
        "keys": shape.keys,
        "build_s": built,
        "checkpoints": [asdict(one) for one in checkpoints],
    }


def _checkpoint(
    job: LargeState, watches: Stopwatches, phase: str, share: float, before: int
) -> CheckpointCost:
    """Trigger a checkpoint when most of the change is in flight, so that its barrier meets data."""
    records = max(PIECES, round(job.shape.keys * share))
    end = job.change(records)
    job.wait_until_planned(end - records // PIECES)
    batches = len(job.keyed_reports())
    watches.take()
    record, position = job.checkpoint_and_position()
    parts = watches.take()
    job.wait_until_processed(end)
    snapshots = [one.phases.get("snapshot", 0.0) for one in job.keyed_reports()[batches:]]
    stats = [s for o in record.operators if o.uid == KEYED_STEP for s in o.stats]
    cost = CheckpointCost(
        phase=phase,
        share=share,
        changed=position - before,
        position=position,
        duration_s=record.duration_s,
        new_bytes=record.new_bytes,
        full_bytes=record.full_bytes,
        start_delay_s=max(s.start_delay_s for s in stats),
        alignment_s=max(s.alignment_s for s in stats),
        sync_s=max(s.sync_s for s in stats),
        async_s=max(s.async_s for s in stats),
        snapshot_s=max(snapshots, default=0.0),
        parts=parts,
        steps=_steps(record),
    )
    print(
        f"{phase} {share:.2%}: {cost.changed:,} keys changed, {cost.new_bytes / 1e6:,.1f} MB "
        f"of {cost.full_bytes / 1e6:,.1f} MB in {cost.duration_s:.2f} s",
        flush=True,
    )
    return cost


def _steps(record: CheckpointStats) -> dict[str, float]:
    """How many seconds after the trigger each thing happened; the last of its kind counts."""
    return {line.event.value: line.time - record.triggered for line in record.events}
