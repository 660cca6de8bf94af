"""Jobs whose savepoints and in-flight data are in a real S3 server."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from penstock.cli.main import main
from penstock.common.config.locations import parse_location
from penstock.common.storage_url import StorageUrl
from penstock.savepoint.directory import dispose
from penstock.storage.storages import storage_at
from penstock.testing import compare
from penstock.testing.servers.s3_server import S3Server
from tests.unit.job.counting import (
    Program,
    bursts,
    checkpoint,
    counted,
    die,
    flip_a_byte,
    idle_after,
    launched,
    wait_for_records,
)
from tests.unit.job.snapshot.test_in_flight_files import backlogged
from tests.unit.support import eventually

pytestmark = pytest.mark.s3

BUCKET = "jobs"


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


@pytest.fixture
def place(s3: S3Server, request: pytest.FixtureRequest) -> StorageUrl:
    s3.create_bucket(BUCKET)
    return s3.url(BUCKET, request.node.name)


@pytest.fixture
def reach(s3: S3Server) -> dict[str, str]:
    """The settings with which a job reaches the server."""
    return {
        f"penstock.storage.{name}".replace(".", "__").replace("-", "_"): value
        for name, value in s3.options().items()
    }


def located(place: StorageUrl, path: str) -> StorageUrl:
    found = parse_location(path, place.options)
    assert isinstance(found, StorageUrl)
    return found


@pytest.mark.parametrize(("backend", "in_store"), [("rocksdb", False), ("hashmap", True)])
def test_a_moved_savepoint_restores_a_job_at_another_parallelism(
    place: StorageUrl, reach: dict[str, str], tmp_path: Path, backend: str, in_store: bool
) -> None:
    own = {"execution__checkpointing__dir": str(place / "checkpoints")} if in_store else {}
    first = Program(
        tmp_path,
        idle_after(50),
        interval="1 h",
        settings={"state__backend__type": backend, **reach, **own},
    )
    job = first.launch()
    wait_for_records(job, 50)
    path = located(place, job.stop(str(place / "savepoints"), drain=False).result(20))
    assert job.wait_for_end(20)
    assert first.verdict(50).is_exactly_once, first.verdict(50)
    moved = place / "moved"
    for name in storage_at(path).list(""):
        storage_at(moved).create(name, storage_at(path).read(name))
    storage_at(path).delete_tree("")
    second = Program(
        tmp_path / "second",
        bursts(100),
        parallelism=3,
        settings={"execution__state_recovery__path": str(moved), **reach},
    )
    second.root.mkdir()
    second.run()
    verdict = compare(counted(100), [*first.lines(), *second.lines()])
    assert verdict.is_exactly_once, verdict
    dispose(moved, place / "checkpoints" if in_store else tmp_path / "checkpoints")
    assert storage_at(moved).list("") == []


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_inspect_reads_a_checkpoint_and_names_a_flipped_byte(
    s3: S3Server, place: StorageUrl, reach: dict[str, str], tmp_path: Path, backend: str
) -> None:
    settings = {"state__backend__type": backend, "execution__checkpointing__dir": str(place)}
    program = Program(tmp_path, idle_after(50), interval="1 h", settings={**settings, **reach})
    job = program.launch()
    wait_for_records(job, 50)
    path = located(place, job.trigger_checkpoint().result(20).path)
    die(job)
    with_settings = [f"-Dpenstock.storage.{k}={v}" for k, v in s3.options().items()]
    command = ["checkpoint", "inspect", str(path), *with_settings]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    assert "value state" in result.output
    objects = [path.parent / name for name in storage_at(path.parent).list("shared")]
    assert objects
    for damaged in objects:
        flip_a_byte(s3.buckets / damaged.authority / damaged.path)
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1
    for damaged in objects:
        assert f"{damaged}: its checksum is" in result.output


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_state_in_a_store_is_measured_compared_and_exported(
    s3: S3Server, place: StorageUrl, reach: dict[str, str], tmp_path: Path, backend: str
) -> None:
    settings = {
        "state__backend__type": backend,
        "execution__checkpointing__dir": str(place),
        "execution__checkpointing__num_retained": "2",
    }
    program = Program(tmp_path, idle_after(50), interval="1 h", settings={**settings, **reach})
    job = program.launch()
    wait_for_records(job, 50)
    first = job.trigger_checkpoint().result(20).path
    path = located(place, job.trigger_checkpoint().result(20).path)
    die(job)
    with_settings = [f"-Dpenstock.storage.{k}={v}" for k, v in s3.options().items()]

    def state(*command: object) -> Any:
        result = CliRunner().invoke(main, ["state", *map(str, command), *with_settings])
        assert result.exit_code == 0, result.output
        return result

    shown = msgspec.json.decode(state("show", path.parent, "--json").stdout)["snapshot"]
    found = [(o["uid"], s["name"], s["entries"]) for o in shown["operators"] for s in o["states"]]
    (operator, name, entries) = found[0]
    assert entries > 0
    rows = list(
        csv.DictReader(
            state(
                "export", path, "--operator", operator, "--state", name, "--output", "-",
                "--format", "csv",
            ).stdout.splitlines()
        )
    )  # fmt: skip
    assert len(rows) == entries
    assert sum(int(row["value"]) for row in rows) == 50
    changes = msgspec.json.decode(state("diff", path.parent, "--json").stdout)
    assert changes["before"]["path"] == str(located(place, first))
    assert [s for o in changes["operators"] for s in o["states"] if s["changed"]] == []


def test_in_flight_data_of_another_job_is_restored(
    place: StorageUrl, reach: dict[str, str], tmp_path: Path
) -> None:
    first = backlogged(tmp_path, execution__checkpointing__dir=str(place / "first"), **reach)
    eventually(lambda: sum(r.records_in for r in first.micro_batches()) >= 20)
    path = located(place, first.trigger_checkpoint().result(20).path)
    first.cancel()
    assert first.wait_for_end(20)
    assert [name for name in storage_at(path).list("in-flight") if name.endswith(".segments")]
    second = backlogged(
        tmp_path,
        execution__checkpointing__dir=str(place / "second"),
        execution__state_recovery__path=str(path),
        **reach,
    )
    eventually(lambda: sum(r.records_in for r in second.micro_batches()) > 20)
    checkpoint(second)
    die(second)
