"""The list of jobs: jobs that are new, cannot be read, or do not exist."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.serve.jobs.cached_job import CachedJob, JobView
from penstock.serve.jobs.catalog import JobCatalog
from penstock.serve.jobs.hex_ids import hex_id
from tests.unit.cli.job_fixtures import job_directory, set_driver
from tests.unit.serve.serve_fixtures import get, server


class Clock:
    """Wall clock and monotonic clock of a catalog."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def catalog(tmp_path: Path, clock: Clock) -> Iterator[JobCatalog]:
    catalog = JobCatalog(tmp_path, 10_000.0, clock=clock, monotonic=clock)
    yield catalog
    catalog.close()


def looks(patched: pytest.MonkeyPatch) -> list[str]:
    """Return the jobs that are read from now on."""
    read: list[str] = []
    real = CachedJob.read

    def reading(job: CachedJob, now: float) -> JobView | None:
        read.append(job.directory.key)
        return real(job, now)

    patched.setattr(CachedJob, "read", reading)
    return read


@pytest.mark.parametrize("id_", ["b", hex_id("b")])
def test_a_job_that_starts_while_the_directory_is_looked_at_is_found(
    catalog: JobCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, id_: str
) -> None:
    job_directory(tmp_path, "a")
    goes_on, real = threading.Event(), catalog._read

    def slow(*args: Any) -> Any:
        goes_on.wait(10)
        return real(*args)

    monkeypatch.setattr(catalog, "_read", slow)
    looking = threading.Thread(target=catalog.jobs)
    looking.start()
    time.sleep(0.1)
    job_directory(tmp_path, "b")
    found: list[object] = []
    finding = threading.Thread(target=lambda: found.append(catalog.find(id_)))
    finding.start()
    time.sleep(0.1)
    goes_on.set()
    finding.join()
    looking.join()
    assert found
    assert found[0] is not None


def test_an_unknown_id_makes_nothing_be_read(
    catalog: JobCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        job_directory(tmp_path, name)
    catalog.jobs()
    read = looks(monkeypatch)
    for number in range(50):
        assert catalog.find(f"unknown{number}") is None
        assert catalog.find(hex_id(f"unknown{number}")) is None
    assert read == []
    job_directory(tmp_path, "c")
    assert catalog.find("c") is not None
    assert set(read) == {"c"}


def test_a_job_that_cannot_be_read_for_long_is_not_shown_as_it_was(
    catalog: JobCatalog, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_driver(job_directory(tmp_path, "a", name="orders"), pid=1)
    job_directory(tmp_path, "b")
    assert catalog.jobs()[0].overview.status == "RUNNING"
    real = CachedJob.read

    def failing(job: CachedJob, now: float) -> JobView | None:
        if job.directory.key == "a":
            raise OSError(5, "Input/output error")
        return real(job, now)

    with monkeypatch.context() as patched:
        patched.setattr(CachedJob, "read", failing)

        def shown() -> tuple[str, str, list[str]]:
            clock.now += 1.5
            catalog._begin_look().result()
            first, second = (view.overview for view in catalog.jobs())
            assert second.status == "SUSPENDED"
            return first.status, first.name, first.unreadable

        assert shown() == ("RUNNING", "orders", [])
        clock.now += 30
        assert shown() == ("DAMAGED", "orders", [str(tmp_path / "a")])
        assert shown()[0] == "DAMAGED"
    clock.now += 1.5
    catalog._begin_look().result()
    assert catalog.jobs()[0].overview.status == "RUNNING"


def test_a_job_that_was_never_read_is_shown_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_directory(tmp_path, "a")

    def failing(job: CachedJob, now: float) -> JobView | None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(CachedJob, "read", failing)
    with server(tmp_path) as client:
        (job,) = get(client, "/jobs/overview")["jobs"]
        assert (job["state"], job["penstock-status"]) == ("SUSPENDED", "DAMAGED")
        assert job["unreadable"] == [str(tmp_path / "a")]
        (listed,) = get(client, "/penstock/jobs")["jobs"]
        assert listed["status"] == "DAMAGED"
        assert client.get("/jobs/a").status_code == 503
