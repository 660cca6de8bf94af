"""Files of rows that are damaged or moved before the PostgreSQL sink is through with them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import CommitFailedError, CorruptStagedRecordsError
from tests.contracts.sink_harness import Attempt, Case, files_in
from tests.servers.postgres_sink_case import (
    dsn_of,
    prepared,
    run,
    single_phase_case,
    two_phase_case,
    upsert_case,
)

pytestmark = pytest.mark.postgres

LARGE = "x" * 100_000


@pytest.fixture(params=[two_phase_case, single_phase_case], ids=["two phases", "one phase"])
def case(request: pytest.FixtureRequest, postgres: Any, tmp_path: Path) -> Any:
    return request.param(postgres, tmp_path)


def roll_back_all(dsn: str) -> None:
    for gid in prepared(dsn):
        run(dsn, f"ROLLBACK PREPARED '{gid}'")


def damage(directory: Path) -> Path:
    """Change one letter in the middle of the only file of rows."""
    (path,) = (directory / "work").rglob("*.rows")
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(data[:middle] + b"y" + data[middle + 1 :])
    return path


def test_a_corrupt_file_is_not_prepared(postgres: Any, tmp_path: Path) -> None:
    case = two_phase_case(postgres, tmp_path)
    attempt = Attempt(case, tmp_path)
    attempt.publish([LARGE], [])
    path = damage(tmp_path)
    with pytest.raises(CorruptStagedRecordsError, match=r"checksum is .*put back") as caught:
        attempt.snapshot()
    assert caught.value.place == str(path)
    assert prepared(dsn_of(case)) == []


def test_a_corrupt_file_is_not_committed(case: Case, tmp_path: Path) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish([LARGE], [])
    committables = attempt.snapshot().committables
    roll_back_all(dsn_of(case))
    path = damage(tmp_path)
    with pytest.raises(CommitFailedError, match=re.escape(f"{path} is missing or damaged; put")):
        attempt.commit(committables)
    assert case.shown() == []


def test_a_corrupt_file_is_not_upserted(postgres: Any, tmp_path: Path) -> None:
    case = upsert_case(postgres, tmp_path)
    attempt = Attempt(case, tmp_path)
    staged = attempt.stage(0, [LARGE])
    damage(tmp_path)
    with pytest.raises(CorruptStagedRecordsError):
        attempt.take([staged, b""])
    assert case.shown() == []


def test_a_job_whose_directory_was_moved_commits_and_keeps_its_files(
    case: Case, tmp_path: Path
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    attempt = Attempt(case, there, job_instance=tmp_path.name)
    attempt.publish([LARGE], [])
    committables = attempt.snapshot().committables
    roll_back_all(dsn_of(case))
    there.rename(here)
    successor = Attempt(case, here, "a2", job_instance=tmp_path.name)
    successor.sweep(committables)
    assert successor.commit(committables).committed == 1
    assert case.shown() == [LARGE]
    assert files_in(tmp_path) == []
