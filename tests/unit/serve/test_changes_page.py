"""What changed between two checkpoints: counts for everybody, keys of states that are queryable."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.serve.dashboard import changes_page
from tests.unit.cli.job_fixtures import json_of, penstock
from tests.unit.serve.serve_fixtures import get, server

GOLDEN = Path(__file__).parents[2] / "golden" / "jobs" / "v1"
JOBS = "/v1/penstock/jobs"


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    (found,) = (GOLDEN / "rocksdb" / "checkpoints").iterdir()
    shutil.copytree(found, tmp_path / "rocksdb")
    return tmp_path


def let_all_be_looked_up(job: Path) -> None:
    """Write the setting into the facts of a job, as one that was started with it has them."""
    facts = msgspec.json.decode((job / "job.json").read_bytes())
    facts.setdefault("settings", {})["penstock.queryable-state.enabled"] = "true"
    (job / "job.json").write_bytes(msgspec.json.encode(facts))


def counts(changes: Any) -> dict[tuple[str, str], tuple[int, int, int]]:
    return {
        (operator["uid"], state["name"]): (state["added"], state["removed"], state["changed"])
        for operator in changes["operators"]
        for state in operator["states"]
    }


def test_the_checkpoints_that_can_be_compared_are_listed_newest_first(jobs: Path) -> None:
    with server(jobs) as client:
        found = get(client, f"{JOBS}/rocksdb/state/changes")
    assert [checkpoint["id"] for checkpoint in found["checkpoints"]] == [2, 1]
    assert found["changes"] is None


def test_counts_are_those_of_the_command_and_keys_are_hidden(jobs: Path) -> None:
    with server(jobs) as client:
        changes = get(client, f"{JOBS}/rocksdb/state/changes?from=1&to=2")["changes"]
        backwards = get(client, f"{JOBS}/rocksdb/state/changes?from=2&to=1")["changes"]
    printed = json_of(penstock("state", "diff", jobs / "rocksdb", "--json"))
    assert counts(changes) == counts(printed)
    assert sum(map(sum, counts(changes).values())) > 50
    assert counts(backwards) == {
        name: (removed, added, changed)
        for name, (added, removed, changed) in counts(changes).items()
    }
    states = [state for operator in changes["operators"] for state in operator["states"]]
    assert all(state["keys"] == [] and not state["may_show"] for state in states)


def test_keys_are_shown_if_the_job_lets_others_look_up_its_state(jobs: Path) -> None:
    let_all_be_looked_up(jobs / "rocksdb")
    with server(jobs) as client:
        changes = get(client, f"{JOBS}/rocksdb/state/changes?from=1&to=2")["changes"]
    printed = json_of(
        penstock("state", "diff", jobs / "rocksdb", "--json", "--keys", "--limit", 10)
    )
    assert changes["operators"] == printed["operators"]


def test_checkpoints_that_do_not_exist_or_are_no_numbers_are_refused(jobs: Path) -> None:
    with server(jobs) as client:
        for query, status in (
            ("from=1&to=9", 404),
            ("from=1", 400),
            ("from=1&to=x", 400),
            ("from=-1&to=2", 400),
            (f"from=1&to={'9' * 400}", 400),
        ):
            found = client.get(f"{JOBS}/rocksdb/state/changes?{query}")
            assert (found.status_code, list(found.json())) == (status, ["errors"]), query


def test_too_much_to_read_is_refused_with_the_command_that_does_it(
    jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes_page, "MOST_BYTES_COMPARED", 1000)
    changes_page._known.clear()
    with server(jobs) as client:
        found = client.get(f"{JOBS}/rocksdb/state/changes?from=1&to=2")
    assert found.status_code == 413
    assert "penstock state diff rocksdb --from 1 --to 2" in found.json()["errors"][0]


def test_a_damaged_file_is_named(jobs: Path) -> None:
    for file in (jobs / "rocksdb" / "shared").rglob("*.sst"):
        file.write_bytes(file.read_bytes()[:-1])
    with server(jobs) as client:
        found = client.get(f"{JOBS}/rocksdb/state/changes?from=1&to=2")
    assert found.status_code == 503
    assert ".sst" in found.json()["errors"][0]


def test_a_comparison_leaves_nothing_in_the_job(jobs: Path) -> None:
    def files() -> set[Path]:
        return {file for file in jobs.rglob("*") if file.is_file()}

    before = files()
    with server(jobs) as client:
        get(client, f"{JOBS}/rocksdb/state/changes?from=1&to=2")
    assert files() == before
