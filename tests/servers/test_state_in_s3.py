"""State of jobs in a real S3 server is read as data, with the settings of the store as options."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock.spark.state.options import parse_options
from penstock.spark.state.plan import plan_scan
from penstock.testing.servers.s3_server import S3Server
from tests.unit.job.counting import Program, die, idle_after, launched, wait_for_records
from tests.unit.spark.state.reads import plain, rows_of

pytestmark = pytest.mark.s3

BUCKET = "state"


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_checkpoints_and_savepoints_in_a_store_have_the_same_state(
    s3: S3Server, tmp_path: Path, backend: str
) -> None:
    s3.create_bucket(BUCKET)
    place = s3.url(BUCKET, backend)
    reach = {f"penstock.storage.{name}": value for name, value in s3.options().items()}
    settings = {"state.backend.type": backend, "execution.checkpointing.dir": str(place), **reach}
    program = Program(
        tmp_path,
        idle_after(50),
        interval="1 h",
        settings={
            name.replace(".", "__").replace("-", "_"): value for name, value in settings.items()
        },
    )
    job = program.launch()
    wait_for_records(job, 50)
    checkpoint = job.trigger_checkpoint().result(20).path
    savepoint = job.trigger_savepoint(str(place / "savepoints")).result(20).path
    die(job)
    for path in (checkpoint, savepoint, checkpoint.rpartition("/")[0]):
        options = {"path": path, "operatorUid": "count", **reach}
        rows = rows_of(plan_scan(parse_options(options)))
        assert {plain(row["key"]): plain(row["value"]) for row in rows} == {0: 17, 1: 17, 2: 16}
        (one,) = rows_of(plan_scan(parse_options({**options, "key": "2"})))
        assert plain(one["value"]) == 16
        positions = rows_of(
            plan_scan(parse_options({"path": path, "readSourcePositions": "true", **reach}))
        )
        assert sum(row["position"] for row in positions) == 50
