"""`python -m tests.crash.orders --seeds 1-50`: a line for each, and 1 if any of them failed."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.errors import MissingServerError
from penstock.testing.servers.kafka_files import KafkaFiles
from penstock.testing.servers.postgres_server import postgres_binaries
from tests.crash.orders.schedule import EVENTS, Family, Outcome, Schedule, play
from tests.crash.orders.world import World


def main(arguments: Sequence[str]) -> int:
    """Play schedules; directories of those that failed are kept, and named at the end."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.orders")
    parser.add_argument("--seeds", required=True, help="a range such as 1-50, or one")
    parser.add_argument("--family", type=Family, choices=list(Family), default=Family.INLINE)
    parser.add_argument("--events", type=int, default=EVENTS, help="how many orders in each")
    parser.add_argument("--at-once", type=int, default=1, help="how many run beside each other")
    given = parser.parse_args(arguments)
    try:
        KafkaFiles.in_cache().required()
        postgres_binaries()
    except MissingServerError as missing:
        print(f"nothing is played: {missing}")
        return 1 if os.environ.get("PENSTOCK_REQUIRE_SERVERS") else 0
    low, _, high = given.seeds.partition("-")
    seeds = range(int(low), int(high or low) + 1)
    began, bad, number = time.monotonic(), list[tuple[Outcome, Path]](), 0
    for outcome, directory in _played(seeds, given.family, given.events, given.at_once):
        print(outcome, flush=True)
        number += 1
        if not outcome.is_good:
            bad.append((outcome, directory))
    print(f"{number} schedules, {len(bad)} failed, {time.monotonic() - began:.0f} s")
    for outcome, directory in bad:
        print(f"seed {outcome.schedule.seed} failed, its files are in {directory}")
    return 1 if bad else 0


def _played(
    seeds: Sequence[int], family: Family, events: int, at_once: int
) -> Iterator[tuple[Outcome, Path]]:
    def one(seed: int) -> tuple[Outcome, Path]:
        return play_in_a_new_world(seed, family, events)

    if at_once == 1:
        # In this thread: who ends this process ends what it has started.
        yield from map(one, seeds)
        return
    with ThreadPoolExecutor(at_once) as pool:
        yield from pool.map(one, seeds)


def play_in_a_new_world(seed: int, family: Family, events: int) -> tuple[Outcome, Path]:
    """Play a seed's schedule with servers of its own; its directory goes unless it failed."""
    directory = new_directory()
    with World(directory / "servers") as world:
        outcome = play(Schedule.from_seed(seed, family), world, directory, events)
    if outcome.is_good:
        shutil.rmtree(directory, ignore_errors=True)
    return outcome, directory


def new_directory() -> Path:
    """Make a directory for a run, open to the user the database runs as."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-orders-"))
    directory.chmod(0o755)
    return directory


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:]))
