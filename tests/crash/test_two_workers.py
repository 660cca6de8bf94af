"""Jobs on two hosts: state stays where it is, and hosts and drivers may die.

The workers of a standalone cluster listen on two addresses of this machine, each with a directory
of its own for state.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

from tests.crash.cluster_program import Order, Outcome, run
from tests.crash.driver import completed_checkpoints, started
from tests.crash.output_verifier import read_results, verify_output
from tests.crash.pipeline import Variant
from tests.crash.standalone import QUICK_JVM, ROOT, Cluster, standalone_cluster

pytestmark = [pytest.mark.crash, pytest.mark.spark]

HOSTS = ("127.0.0.2", "127.0.0.3")
RECORDS = 9_600
"""In micro-batches of 400."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), hosts=HOSTS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def session(cluster: Cluster) -> Iterator[Session]:
    session = Session(cluster)
    yield session
    session.close()


class Session:
    """A driver of its own on the cluster, with an executor on each host."""

    def __init__(self, cluster: Cluster) -> None:
        self._settings = on(cluster)
        self.log = cluster.directory / "driver.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.cluster_program"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def run(self, order: Order) -> Outcome:
        """Run a job to its end."""
        settings = {**self._settings, **order.settings}
        request = msgspec.json.encode(msgspec.structs.replace(order, settings=settings))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(request + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self.log.read_text(errors="replace")[-3000:]
        return msgspec.json.decode(answer, type=Outcome)

    def close(self) -> None:
        """End it, and give its cores back."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def on(cluster: Cluster) -> dict[str, str]:
    """Settings of a driver that wants all there is, two cores on each host, and waits for it."""
    return {
        "spark.master": cluster.address,
        "spark.driver.host": "127.0.0.1",
        "spark.cores.max": "4",
        "spark.executor.cores": "2",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }


@cache
def expected() -> list[tuple[int, int, int, int]]:
    """What one subtask on one host makes of the same input."""
    return sorted(run(Order(RECORDS, 1, {}), inline=True).results)


def hosts_of(outcome: Outcome, batch: int) -> list[str]:
    """Where the subtasks of a micro-batch of the keyed step ran."""
    homes = outcome.homes[batch]
    return [Path(home.directory).parts[-3] for home in homes if home is not None]


def left_on(cluster: Cluster, host: str) -> list[Path]:
    return list(cluster.local_dir(host).iterdir())


@pytest.mark.parametrize(("exchange", "backend"), [("channel", "hashmap"), ("shuffle", "rocksdb")])
def test_subtasks_return_to_their_state_and_the_output_is_exact(
    cluster: Cluster, session: Session, exchange: str, backend: str
) -> None:
    settings = {"penstock.exchange": exchange, "state.backend.type": backend}
    outcome = session.run(Order(RECORDS, 4, settings))
    assert outcome.micro_batches >= 20
    assert outcome.share_at_home >= 0.95
    assert outcome.rebuilt <= outcome.moved, "state was found where the subtask was before"
    assert set(hosts_of(outcome, 0)) == set(HOSTS)
    assert sorted(outcome.results) == expected()
    assert [left_on(cluster, host) for host in HOSTS] == [[], []]


@pytest.mark.parametrize("exchange", ["channel", "shuffle"])
def test_subtasks_of_a_lost_host_move_and_return_when_it_is_back(
    cluster: Cluster, session: Session, tmp_path: Path, exchange: str
) -> None:
    order = Order(
        RECORDS,
        4,
        {"penstock.exchange": exchange},
        kill_at=2_000,
        wait_at=4_000,
        directory=str(tmp_path),
    )

    def bring_back() -> None:
        died = eventually(lambda: (tmp_path / "dead").read_text(), tmp_path / "dead")
        eventually((tmp_path / "waiting").exists)
        host = Path(died).parent.name
        before = cluster.registered(host)
        cluster.start_workers(host)
        eventually(lambda: cluster.registered(host) > before)
        (tmp_path / "gate").touch()

    helper = threading.Thread(target=bring_back, daemon=True)
    helper.start()
    outcome = session.run(order)
    helper.join()
    assert (tmp_path / "gate").exists()
    assert sorted(outcome.results) == expected()
    assert outcome.most_tries <= 2
    died = Path((tmp_path / "dead").read_text()).parent.name
    lost = hosts_of(outcome, 0).count(died)
    assert lost > 0
    assert lost <= outcome.moved
    assert set(hosts_of(outcome, -1)) == set(HOSTS), "who has come back gets work again"
    assert outcome.rebuilt <= outcome.moved


def eventually(look: Callable[[], object], path: Path | None = None) -> str:
    """Wait until an answer is there, and return it as text."""
    end = time.monotonic() + 120
    while True:
        if path is None or path.exists():
            answer = look()
            if answer:
                return str(answer)
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_killed_executor_and_a_killed_driver_keep_the_output_exact(
    cluster: Cluster, session: Session, tmp_path: Path
) -> None:
    session.close()
    eventually(lambda: not cluster.executors())
    variant = Variant(
        directory=str(tmp_path),
        fast=900,
        slow=60,
        parallelism=4,
        backend="rocksdb",
        incremental=True,
        interval_ms=300,
        max_batch=150,
        pause_ms=150,
        stays=True,
        spark=True,
        settings=on(cluster),
    )

    def has_more_than(checkpoints: int) -> bool:
        return completed_checkpoints(variant) > checkpoints

    with started(variant) as driver:
        assert driver.wait_until(lambda: has_more_than(1), 180)
        alive = cluster.executors()
        assert len(alive) == 2
        os.kill(alive[0], signal.SIGKILL)
        seen = completed_checkpoints(variant)
        assert driver.wait_until(lambda: has_more_than(seen + 1), 180)
        driver.kill()
    kept = [left_on(cluster, host) for host in HOSTS]
    assert any(kept), "a killed driver leaves state on hosts"
    with started(msgspec.structs.replace(variant, stays=False)) as driver:
        assert driver.wait(240) == 0, driver.words()
    verdict = verify_output(variant.fast, variant.slow, read_results(variant.output))
    assert verdict.is_exactly_once, str(verdict)
    assert [left_on(cluster, host) for host in HOSTS] == [[], []]
