"""Histories of jobs that follow the formulas exactly, or with noise from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable

from penstock.checkpoint.history import (
    CheckpointStats,
    CheckpointStatus,
    LoadStats,
    OperatorStats,
    Recovery,
)
from penstock.checkpoint.storage.metadata import SubtaskStats

MB = 1_000_000


def checkpoint(
    number: int,
    triggered: float,
    *,
    new_bytes: int = MB,
    full_bytes: int = 100 * MB,
    barrier_s: float = 0.2,
    sync_s: float = 0.01,
    async_s: float = 0.5,
    coordination_s: float = 0.05,
    attempt: str = "a1",
    kind: str = "periodic",
    status: CheckpointStatus = CheckpointStatus.COMPLETED,
    failure: str | None = None,
    load_before: LoadStats | None = None,
    load_during: LoadStats | None = None,
) -> CheckpointStats:
    """One record, in which the second operator is the last to acknowledge."""
    acknowledged = triggered + barrier_s + sync_s + async_s
    early = SubtaskStats(acknowledged=triggered + 0.01, sync_s=0.001)
    late = SubtaskStats(
        start_delay_s=barrier_s / 2,
        alignment_s=barrier_s / 2,
        sync_s=sync_s,
        async_s=async_s,
        acknowledged=acknowledged,
        new_bytes=new_bytes,
        full_bytes=full_bytes,
    )
    return CheckpointStats(
        id=number,
        kind=kind,
        status=status,
        attempt=attempt,
        triggered=triggered,
        duration_s=barrier_s + sync_s + async_s + coordination_s,
        new_bytes=new_bytes,
        full_bytes=full_bytes,
        operators=[OperatorStats("s", "source", [early]), OperatorStats("k", "count", [late])],
        failure=failure,
        load_before=load_before,
        load_during=load_during,
    )


def history(
    count: int = 12,
    interval_s: float = 10.0,
    *,
    per_byte: float = 1e-8,
    full_bytes: int = 100 * MB,
    new_bytes: Callable[[int], float] = lambda _: MB,
    noise: float = 0.0,
    seed: int = 0,
    rate: float = 1000.0,
    fixed_s: float = 0.1,
    per_record: float = 0.0004,
    lost_s: float = 0.3,
) -> list[CheckpointStats]:
    """Checkpoints every `interval_s`, the first of which writes the whole state.

    Micro-batches take `fixed_s + records * per_record`, one a second, and those during a
    checkpoint `lost_s` longer.
    """
    rng = random.Random(seed)
    found = []
    for number in range(1, count + 1):
        size = full_bytes if number == 1 else round(new_bytes(number))
        factor = 1 + rng.uniform(-noise, noise)
        found.append(
            checkpoint(
                number,
                1000.0 + number * interval_s,
                new_bytes=size,
                full_bytes=full_bytes,
                async_s=(0.1 + size * per_byte) * factor,
                load_before=_load(interval_s - 1, rate, fixed_s, per_record, 0.0),
                load_during=_load(1, rate, fixed_s, per_record, lost_s),
            )
        )
    return found


def _load(
    seconds: float, rate: float, fixed_s: float, per_record: float, more_s: float
) -> LoadStats:
    records, batches = round(rate * seconds), max(1, round(seconds))
    working = records * per_record
    return LoadStats(
        seconds, records, records, batches, batches * fixed_s + working + more_s, working
    )


def recovery(
    number: int = 2,
    *,
    cause: str = "the driver died",
    checkpoint: int | None = 1,
    detect_s: float = 1.5,
    redeploy_s: float = 10.0,
    load_state_s: float = 0.5,
    time: float = 2000.0,
    loaded_bytes: int = 100 * MB,
    catch_up_began_s: float | None = 1.0,
    caught_up_s: float | None = 21.0,
    catch_up_records: int = 40_000,
) -> Recovery:
    return Recovery(
        f"a{number}",
        checkpoint,
        cause,
        detect_s,
        redeploy_s,
        load_state_s,
        0.01,
        0.02,
        time,
        loaded_bytes,
        5.0,
        catch_up_began_s,
        caught_up_s,
        catch_up_records,
    )
