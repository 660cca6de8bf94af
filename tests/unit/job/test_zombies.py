"""Drivers that were suspended, replaced, and woke up again; all of them in this process."""

from __future__ import annotations

import itertools
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from penstock.errors import FencedError
from penstock.job import launch
from penstock.job.input.read_progress import ReadProgress
from penstock.job.launched_job import LaunchedJob
from penstock.recovery.control import Checkpoint, Control
from penstock.recovery.lease import Free, read_owner
from penstock.task.messages import Instruction
from tests.unit.job.counting import (
    Program,
    bursts,
    checkpoint,
    counted,
    die,
    idle_after,
    launched,
    wait_for_lines,
    wait_for_records,
)
from tests.unit.support import WatchedSubmitter, eventually

HEARTBEATS = {"heartbeat__interval": "20 ms", "heartbeat__timeout": "10 s"}


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


class Suspended(WatchedSubmitter):
    """Holds the driver at one micro-batch of its source, as if it had been suspended there."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self._batch = batch
        self.is_reached = threading.Event()
        self.wake = threading.Event()

    def before(self, instruction: Instruction) -> None:
        if (instruction.stage, instruction.batch) == (0, self._batch):
            self.is_reached.set()
            assert self.wake.wait(60)


def suspended(program: Program, batch: int) -> tuple[LaunchedJob, Suspended]:
    """Start a driver that is suspended at a micro-batch; another one may be started then."""
    held = Suspended(batch)
    job = held.watch(program.build())._launch("count")
    job.result()
    launched.append(job)
    assert held.is_reached.wait(60)
    launch._launched.clear()
    return job, held


@pytest.fixture(autouse=True)
def _the_first_driver_looks_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.job.job_run.refuse_second_driver", lambda *_: Free())


def take_over(program: Program, job: LaunchedJob) -> None:
    """Write heartbeats of a driver that has taken over, until the first one has seen them."""
    owner = read_owner(program.dir)
    assert owner is not None
    successor = msgspec.json.encode(msgspec.structs.replace(owner, attempt="a9", pid=1))

    def is_noticed() -> bool:
        program.dir.storage.replace(program.dir.driver.name, successor)
        return job._store.lease.lost is not None

    eventually(is_noticed)


def test_at_most_once_repeats_nothing_after_a_replaced_driver_woke_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"execution__checkpointing__mode": "AT_MOST_ONCE"}
    is_reached, wake, calls = threading.Event(), threading.Event(), itertools.count(1)
    write = ReadProgress.write

    def suspended_write(self: ReadProgress, positions: Mapping[str, int]) -> None:
        if next(calls) == 3:
            planned.update(positions)
            is_reached.set()
            assert wake.wait(60)
        write(self, positions)

    planned: dict[str, int] = {}
    monkeypatch.setattr(ReadProgress, "write", suspended_write)
    zombie = Program(tmp_path, idle_after(100), interval="1 h", settings=settings).launch()
    assert is_reached.wait(60)
    launch._launched.clear()
    second = Program(tmp_path, idle_after(100), settings=settings).launch()
    wait_for_records(second, 100 - planned["0"])
    wait_for_lines(Program(tmp_path), 60)
    wake.set()
    with pytest.raises(FencedError):
        zombie.result().result(60)
    die(second)
    program = Program(tmp_path, bursts(120), settings=settings)
    program.run()
    lines = Counter(program.lines())
    assert max(lines.values()) == 1
    # A record that is read again is counted again.
    assert set(lines) <= set(counted(120))


def test_every_loop_of_a_driver_that_lost_its_lease_ends_without_input_or_checkpoint(
    tmp_path: Path,
) -> None:
    others = set(threading.enumerate())
    program = Program(tmp_path, idle_after(20), interval="1 h", settings=HEARTBEATS)
    job = program.launch()
    wait_for_records(job, 20)
    take_over(program, job)
    with pytest.raises(FencedError, match="a9"):
        job.result().result(60)
    loops = ("region-", "coordinator", "commit", "requests", "lease", "compact-")
    mine = [t for t in threading.enumerate() if t not in others and t.name.startswith(loops)]
    eventually(lambda: not any(thread.is_alive() for thread in mine))


def test_a_driver_that_lost_its_lease_publishes_nothing_more(tmp_path: Path) -> None:
    program = Program(tmp_path, idle_after(100), interval="1 h", settings=HEARTBEATS)
    job, held = suspended(program, batch=2)
    before = len(job.micro_batches())
    take_over(program, job)
    held.wake.set()
    with pytest.raises(FencedError):
        job.result().result(60)
    assert len([r for r in job.micro_batches() if r.stage == 0]) <= max(before, 1)


def test_requests_are_left_for_the_driver_that_took_over(tmp_path: Path) -> None:
    program = Program(tmp_path, idle_after(20), interval="1 h", settings=HEARTBEATS)
    job = program.launch()
    wait_for_records(job, 20)
    take_over(program, job)
    control = Control(program.dir)
    request = control.submit(Checkpoint())
    with pytest.raises(FencedError):
        job.result().result(60)
    assert control.answer(request) is None
    assert [id_ for id_, _ in control.pending()] == [request]


def test_a_driver_that_was_replaced_writes_no_history(tmp_path: Path) -> None:
    program = Program(tmp_path, idle_after(20), interval="1 h", settings=HEARTBEATS)
    job = program.launch()
    wait_for_records(job, 20)
    take_over(program, job)
    with pytest.raises(FencedError):
        job.result().result(60)
    assert program.history().exceptions() == []


def test_a_socket_job_whose_driver_hangs_is_continued_by_another_driver(tmp_path: Path) -> None:
    program = Program(tmp_path, interval="1 h")

    def start(interval: str) -> tuple[LaunchedJob, socket.socket]:
        program.interval = interval
        env = program.environment()
        lines = env.socket_text_stream("127.0.0.1", server.getsockname()[1]).uid("lines")
        lines.sink_to(program.sink()).uid("files")
        job = env._launch("lines")
        job.result()
        launched.append(job)
        return job, server.accept()[0]

    with socket.create_server(("127.0.0.1", 0)) as server:
        hung, first = start("1 h")
        with first:
            first.sendall(b"1\n2\n")
            eventually(lambda: sum(r.records_in for r in hung.micro_batches()) >= 2)
            taken = checkpoint(hung)
            eventually(lambda: taken in program.journal().commits_done)
            launch._launched.clear()
            job, second = start("20 ms")
            first.sendall(b"of a zombie\n" * 5)
            with second:
                second.sendall(b"3\n4\n")
            job.result().result(60)
    assert sorted(program.lines()) == ["1", "2", "3", "4"]
