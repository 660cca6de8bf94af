"""The PostgreSQL sink through a network that breaks at any moment, seed by seed."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.connectors.contracts.committing import commit_all
from tests.contracts.sink_harness import Attempt, Case, files_in
from tests.servers.cutting_proxy import CuttingProxy
from tests.servers.postgres_sink_case import lines_in, lines_sink, lines_table, prepared

pytestmark = pytest.mark.postgres

SEEDS = 2
STEPS = 25


class Run:
    """A job of one step over an endless source of numbers, which crashes and is restored."""

    def __init__(self, case: Case, directory: Path) -> None:
        self._case = case
        self._directory = directory
        self._attempts = 0
        self._completed: list[tuple[int, list[bytes]]] = [(0, [])]
        self.restore()

    def restore(self) -> None:
        self._attempts += 1
        self.position, committables = self._completed[-1]
        self._owed: list[bytes] = []
        self._attempt = Attempt(self._case, self._directory, f"a{self._attempts}")
        self._committer = self._attempt.committer()
        self._commit(committables)
        self._committer.sweep([data for _, held in self._completed[-2:] for data in held])

    def micro_batch(self) -> None:
        texts = [[f"{self.position + n} {'x' * 20_000}"] for n in range(2)]
        self._attempt.publish(*texts)
        self.position += 2

    def checkpoint(self) -> None:
        self._owed += self._attempt.snapshot(len(self._completed)).committables
        self._completed.append((self.position, list(self._owed)))
        self._commit(self._owed)
        self._owed = []
        if len(self._completed) > 2:
            with contextlib.suppress(psycopg.Error):  # then the next sweep does it
                self._committer.discard(self._completed[-3][1], self._held())

    def aborted_checkpoint(self) -> None:
        self._owed += self._attempt.snapshot(1000 + len(self._completed)).committables

    def finish(self) -> None:
        self.checkpoint()
        self._committer.sweep([])
        self._committer.close()

    def _held(self) -> list[bytes]:
        return [data for _, held in self._completed[-2:] for data in held]

    def _commit(self, committables: list[bytes]) -> None:
        commit_all(
            self._committer,
            committables,
            retries=100,
            pause=lambda _: time.sleep(0.02),
            step="the sink",
        )


class Cutter:
    """Cuts all connections shortly after a step began, chosen by the seed."""

    def __init__(self, proxy: CuttingProxy, chance: random.Random) -> None:
        self._proxy = proxy
        self._chance = chance

    def during(self, act: Callable[[], None]) -> None:
        cuts = [
            threading.Timer(self._chance.random() * 0.05, self._proxy.cut)
            for _ in range(self._chance.randrange(3))
        ]
        for cut in cuts:
            cut.start()
        try:
            act()
        finally:
            for cut in cuts:
                cut.join()


@pytest.mark.parametrize("two_phase", [True, False])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_row_appears_once_however_often_connections_break(
    postgres: Any, tmp_path: Path, seed: int, two_phase: bool
) -> None:
    chance = random.Random(seed)
    dsn = lines_table(postgres)
    with CuttingProxy(postgres.port) as proxy:
        through = psycopg.conninfo.make_conninfo(dsn, port=proxy.port)
        sink = lines_sink(through).set_two_phase(two_phase).set_max_retries(30).build()
        run = Run(Case(sink, list), tmp_path)
        cutter = Cutter(proxy, chance)
        steps = [run.micro_batch, run.micro_batch, run.checkpoint, run.aborted_checkpoint]
        for _ in range(STEPS):
            step = chance.choice([*steps, run.restore])
            cutter.during(step)
        run.finish()
    shown = [int(text.split()[0]) for text in lines_in(dsn)]
    assert sorted(shown) == list(range(run.position))
    evens = [number for number in shown if number % 2 == 0]
    assert evens == sorted(evens), "one subtask's rows keep their order"
    assert (prepared(dsn), files_in(tmp_path / "work")) == ([], [])
