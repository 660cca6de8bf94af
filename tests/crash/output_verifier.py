"""Verifies the output of a killed job from its input; uses nothing of the engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from penstock.testing.verification import VerificationResult, finished_files, read_lines, verify
from tests.crash.ledger_input import Result, bucket_of, events_of, joined, key_of, totals


def read_results(directory: Path) -> list[Result]:
    """Read what a reader of the sink's path sees."""
    files = finished_files(directory)
    if any(path.suffix == ".parquet" for path in files):
        rows = [row for path in files for row in pq.read_table(path).to_pylist()]
        return [Result(**row) for row in rows]
    return [_parse(line) for line in read_lines(directory)]


def _parse(line: str) -> Result:
    *numbers, token, stamp = line.split(",")
    event, key, n, total, partner, bucket, m, recent = map(int, numbers)
    return Result(event, key, n, total, partner, bucket, m, recent, token, int(stamp))


def verify_output(
    fast: int, slow: int, results: Sequence[Result], *, joins: bool = False, first: int = 0
) -> VerificationResult:
    """Compare all three steps of the job with what they should have made.

    `joins` is whether events of the two sources meet in pairs, `first` the first event.
    """
    verdict = verify(
        events_of(fast, slow, first),
        results,
        event_of=lambda r: r.event,
        key_of=lambda r: r.key,
        position_of=lambda r: r.n,
        replay=lambda key, events: _replay(key, events, results, joins=joins),
    )
    wrong = [*verdict.wrong, *_wrong_buckets(results), *_wrong_stamps(results)]
    return replace(verdict, wrong=tuple(wrong))


def _replay(
    key: int, events: list[int], results: Sequence[Result], *, joins: bool
) -> Iterable[Result]:
    """The first step; what the others made is theirs to answer for."""
    made = {r.event: r for r in results}
    replayed = joined(events) if joins else totals(events)
    for event, (n, total, partner) in zip(events, replayed, strict=True):
        yield made[event]._replace(
            key=key_of(event), n=n, total=total, partner=partner, bucket=bucket_of(key)
        )


def _wrong_buckets(results: Sequence[Result]) -> Iterable[str]:
    buckets: defaultdict[int, list[Result]] = defaultdict(list)
    for result in results:
        buckets[result.bucket].append(result)
    for bucket, mine in buckets.items():
        mine.sort(key=lambda r: r.m)
        last: dict[int, int] = {}
        for m, result in enumerate(mine, start=1):
            recent = sum(r.event for r in mine[max(0, m - 3) : m])
            if (result.m, result.recent) != (m, recent):
                yield f"bucket {bucket}: {result} is number {m}, recent {recent}"
            if result.n <= last.get(result.key, 0):
                yield f"bucket {bucket}: {result} is after a later one of its key"
            last[result.key] = result.n


def _wrong_stamps(results: Sequence[Result]) -> Iterable[str]:
    stamps: defaultdict[str, list[int]] = defaultdict(list)
    for result in results:
        stamps[result.token].append(result.stamp)
    for token, mine in stamps.items():
        if sorted(mine) != list(range(1, len(mine) + 1)):
            yield f"token {token}: {len(mine)} stamps, {len(set(mine))} different, last {max(mine)}"
