import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import AttemptStarted
from penstock.errors import FencedError, JobAlreadyRunningError
from penstock.ids import JobKey
from penstock.recovery.lease import (
    Alive,
    Dead,
    DriverStatus,
    Free,
    Lease,
    Owner,
    Silent,
    decide_driver_status,
    driver_status,
    machine_id,
    process_start_time,
    read_owner,
    refuse_second_driver,
)
from penstock.storage.local_storage import LocalStorage
from penstock.testing import ManualClock
from tests.local_paths import local

TIMEOUT_S = 50.0
HOLDER = """
import sys, time
from pathlib import Path
from penstock.checkpoint.storage.job_dir import JobDir
from penstock.recovery.lease import Lease
from tests.local_paths import local
lease = Lease(JobDir(Path(sys.argv[1]), "count"), 0.02)
lease.take(sys.argv[2])
print("taken", flush=True)
while not lease.is_lost:
    time.sleep(0.01)
lease.release()
print("lost", flush=True)
"""


@pytest.fixture
def job(tmp_path: Path) -> JobDir:
    return JobDir(tmp_path, JobKey("count"))


def drive(job: JobDir, attempt: str) -> subprocess.Popen[str]:
    """Let another process drive the job; it holds the lease when this returns."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(job.root), attempt], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "taken\n"
    return process


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def stands(job: JobDir, timeout_s: float = TIMEOUT_S) -> DriverStatus:
    return driver_status(job, timeout_s, time.time())


def owner(**changes: object) -> Owner:
    here = Owner(socket.gethostname(), machine_id(), 1234, 99, "a1", 1000.0)
    return msgspec.structs.replace(here, **changes)


# -- the decision -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "started", "now", "expected"),
    [
        ({}, 99, 1010.0, Alive),
        ({}, 99, 1050.0, Alive),
        ({}, 99, 1050.5, Silent),
        ({}, None, 1000.0, Dead),
        ({}, 98, 1000.0, Dead),
        ({"host": "other"}, None, 1010.0, Alive),
        ({"host": "other"}, None, 1060.0, Silent),
        ({"machine": "another container"}, None, 1010.0, Alive),
        ({"machine": "another container"}, None, 1060.0, Silent),
        ({"host": "other"}, None, 900.0, Silent),
    ],
)
def test_the_status_of_a_driver_follows_from_its_process_or_on_another_machine_its_heartbeat(
    changes: dict[str, object], started: int | None, now: float, expected: type[DriverStatus]
) -> None:
    it = owner(**changes)
    found = decide_driver_status(it, TIMEOUT_S, now, machine_id(), lambda _: started)
    assert type(found) is expected
    assert not isinstance(found, Dead | Silent) or (found.owner, found.since) == (it, 1000.0)


def test_attempts_are_compared_as_numbers() -> None:
    assert owner(attempt="a10").attempt_number > owner(attempt="a9").attempt_number
    assert owner(attempt="").attempt_number == owner(attempt="x").attempt_number == 0


# -- the file -----------------------------------------------------------------------------------


def test_a_job_without_a_driver_is_free(job: JobDir) -> None:
    assert stands(job) == refuse_second_driver(job, TIMEOUT_S, 0.01) == Free()


def test_a_lease_is_alive_until_it_is_released(job: JobDir) -> None:
    lease = Lease(job, 10)
    lease.take("a1")
    found = stands(job)
    assert isinstance(found, Alive)
    assert (found.owner.pid, found.owner.attempt) == (os.getpid(), "a1")
    lease.take("a2")
    assert read_owner(job) == msgspec.structs.replace(
        found.owner, attempt="a2", beat=getattr(read_owner(job), "beat", 0)
    )
    lease.release()
    assert stands(job) == Free()
    lease.release()


def test_a_lease_beats(job: JobDir) -> None:
    lease = Lease(job, 0.01)
    lease.take("a1")
    first = read_owner(job)
    assert first is not None
    wait_until(lambda: (now := read_owner(job)) is not None and now.beat > first.beat)
    local(job.driver).unlink()
    wait_until(lambda: read_owner(job) is not None)
    lease.release()
    assert not lease.is_lost


def test_a_lease_that_cannot_be_read_is_not_taken_for_a_missing_one(
    job: JobDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: LocalStorage, path: str) -> bytes:
        raise PermissionError(13, "access is denied", path)

    monkeypatch.setattr(LocalStorage, "read", refuse)
    with pytest.raises(PermissionError):
        refuse_second_driver(job, TIMEOUT_S, 0.01)


def test_a_damaged_lease_is_none(job: JobDir) -> None:
    local(job.path).mkdir()
    local(job.driver).write_bytes(b"{")
    assert stands(job) == Free()


def test_a_lease_that_cannot_be_written_is_tried_again(
    job: JobDir, caplog: pytest.LogCaptureFixture
) -> None:
    lease = Lease(job, 0.01)
    lease.take("a1")
    local(job.driver).unlink()
    local(job.driver).mkdir()
    wait_until(lambda: "cannot renew the lease of job count" in caplog.text)
    local(job.driver).rmdir()
    wait_until(local(job.driver).is_file)
    lease.release()


def test_a_driver_whose_heartbeat_is_late_reads_the_journal(job: JobDir) -> None:
    journal, successor = (Journal(job.storage, job.key) for _ in range(2))
    journal.append(AttemptStarted(attempt="a1", time=0.0, host="h", pid=1))
    clock = ManualClock(100.0)
    lease = Lease(job, 60.0, journal, monotonic=clock)
    lease.take("a1")
    successor.state()
    successor.append(AttemptStarted(attempt="a2", time=0.0, host="h", pid=2))
    # Nobody can have taken over before the heartbeat timeout, which is longer than the interval.
    clock.advance(60.0)
    lease.check()
    clock.advance(0.1)
    with pytest.raises(FencedError, match="a2"):
        lease.check()
    lease.release()


def test_a_driver_that_lost_its_lease_is_told_once_and_fails_every_check(job: JobDir) -> None:
    lost: list[FencedError] = []
    lease = Lease(job, 0.01)
    lease.on_lost = lost.append
    lease.take("a1")
    successor = msgspec.json.encode(owner(attempt="a2"))

    def is_noticed() -> bool:
        job.storage.replace("driver.json", successor)
        return bool(lost)

    wait_until(is_noticed)
    with pytest.raises(FencedError, match="a2"):
        lease.check()
    lease.release()
    assert len(lost) == 1


def test_a_damaged_lease_of_this_process_is_written_again(job: JobDir) -> None:
    lease = Lease(job, 0.005)
    lease.take("a1")
    for damaged in (
        local(job.driver).read_bytes().replace(b'"a1"', b'"a3"'),
        local(job.driver).read_bytes().replace(b'"a1"', b'"\xff1"'),
        b"[" * 100_000,
    ):
        job.storage.replace("driver.json", damaged)
        wait_until(lambda: (owner := read_owner(job)) is not None and owner.attempt == "a1")
    assert not lease.is_lost
    lease.release()


# -- other processes ----------------------------------------------------------------------------


def test_a_second_driver_is_refused_until_the_first_is_killed(job: JobDir) -> None:
    process = drive(job, "a1")
    try:
        with pytest.raises(JobAlreadyRunningError, match=f"process {process.pid} on ") as caught:
            refuse_second_driver(job, TIMEOUT_S, 0.01)
        assert caught.value.job == "count"
    finally:
        process.kill()
    # Not collected yet: a zombie has a pid and does not run.
    wait_until(lambda: isinstance(stands(job), Dead))
    process.wait()
    found = refuse_second_driver(job, TIMEOUT_S, 0.01)
    assert isinstance(found, Dead)
    assert found.owner.pid == process.pid


@pytest.mark.parametrize("set_by", [-3600.0, 3600.0])
def test_a_driver_whose_heartbeats_come_is_alive_whatever_the_clock_says(
    job: JobDir, set_by: float
) -> None:
    """Two machines whose clocks differ by an hour."""
    job.storage.replace("driver.json", msgspec.json.encode(owner(host="other")))

    def beat(_: float) -> None:
        here = owner(host="other", beat=1000.0 + next(beats))
        job.storage.replace("driver.json", msgspec.json.encode(here))

    def clock() -> float:
        return 1000.0 + set_by

    beats = itertools.count(1)
    with pytest.raises(JobAlreadyRunningError):
        refuse_second_driver(job, TIMEOUT_S, 10.0, clock, beat)
    waited: list[float] = []
    assert isinstance(refuse_second_driver(job, TIMEOUT_S, 10.0, clock, waited.append), Silent)
    assert sum(waited) > 10.0


def test_a_driver_that_sleeps_is_silent_and_wakes_up_to_a_lost_lease(job: JobDir) -> None:
    process = drive(job, "a1")
    lease = Lease(job, 0.02)
    try:
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: isinstance(stands(job, 0.05), Silent))
        lease.take("a2")
        process.send_signal(signal.SIGCONT)
        assert process.communicate(timeout=60)[0] == "lost\n"
    finally:
        process.kill()
        process.wait()
    found = stands(job)
    assert isinstance(found, Alive)
    assert (found.owner.pid, found.owner.attempt) == (os.getpid(), "a2")
    lease.release()


def test_a_driver_in_office_takes_its_lease_back_from_one_that_woke_up(job: JobDir) -> None:
    lease = Lease(job, 0.01)
    lease.take("a2")
    zombie = msgspec.json.encode(owner(attempt="a1"))
    job.storage.replace("driver.json", zombie)
    wait_until(lambda: (now := read_owner(job)) is not None and now.attempt == "a2")
    assert not lease.is_lost
    lease.release()


def test_a_release_leaves_the_lease_of_the_driver_that_took_over(job: JobDir) -> None:
    lease = Lease(job, 60)
    lease.take("a9")
    successor = owner(attempt="a10")
    job.storage.replace("driver.json", msgspec.json.encode(successor))
    lease.release()
    assert read_owner(job) == successor


def test_a_process_is_identified_by_its_start_time() -> None:
    mine = process_start_time(os.getpid())
    assert mine is not None
    assert mine == process_start_time(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = process_start_time(child.pid)
    assert started is not None
    assert started >= mine
    child.kill()
    child.communicate()
    assert process_start_time(child.pid) is None


def test_a_driver_that_has_started_its_job_does_not_take_it_back(tmp_path: Path) -> None:
    job_dir = JobDir(tmp_path, JobKey("count"))
    slow = Lease(job_dir, 1000.0)
    slow.take("a1", initializing=True)
    first = read_owner(job_dir)
    assert first is not None
    assert first.initializing
    slow.job_runs()
    second = read_owner(job_dir)
    assert second is not None
    assert not second.initializing
    other = msgspec.structs.replace(first, pid=1, attempt="a2")
    job_dir.storage.replace(job_dir.driver.name, msgspec.json.encode(other))
    slow.job_runs()
    assert read_owner(job_dir) == other
    slow.release()


def test_a_driver_that_slept_until_its_successor_had_ended_the_job_takes_no_lease(
    job: JobDir,
) -> None:
    now = [0.0]
    journal = Journal(job.storage, "count")
    journal.state()
    journal.append(AttemptStarted("a1", 1.0, "host", 1))
    lost: list[FencedError] = []
    lease = Lease(job, 0.02, journal, monotonic=lambda: now[0])
    lease.on_lost = lost.append
    with lease._lock:
        lease._attempt = "a1"
    other = Journal(job.storage, "count")
    other.state()
    other.append(AttemptStarted("a2", 1.0, "host", 2))
    with pytest.raises(FencedError):
        lease._renew(None)
    assert not local(job.driver).exists()
    lease._beat()
    assert [error.attempt for error in lost] == ["a1"]
    with pytest.raises(FencedError):
        lease.check()
