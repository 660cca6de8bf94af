"""The page about state says which states others may look up; sizes are shown in any case."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.unit.cli.job_fixtures import json_of, penstock
from tests.unit.serve.serve_fixtures import get, server
from tests.unit.serve.test_changes_page import JOBS, let_all_be_looked_up

GOLDEN = Path(__file__).parents[2] / "golden" / "jobs" / "v1"


def shown(jobs: Path) -> Any:
    with server(jobs) as client:
        return get(client, f"{JOBS}/rocksdb/state")


def test_a_job_whose_states_may_all_be_looked_up_says_so(tmp_path: Path) -> None:
    (found,) = (GOLDEN / "rocksdb" / "checkpoints").iterdir()
    shutil.copytree(found, tmp_path / "rocksdb")
    assert shown(tmp_path)["all_queryable"] is False
    let_all_be_looked_up(tmp_path / "rocksdb")
    assert shown(tmp_path)["all_queryable"] is True


def test_the_page_has_the_sizes_that_the_command_prints(tmp_path: Path) -> None:
    (found,) = (GOLDEN / "rocksdb" / "checkpoints").iterdir()
    shutil.copytree(found, tmp_path / "rocksdb")
    page = shown(tmp_path)["snapshot"]
    printed = json_of(penstock("state", "show", tmp_path / "rocksdb", "--json"))["snapshot"]
    for operator in printed["operators"]:
        for state in operator["states"]:
            del state["key_groups"], state["entries_by_key_group"]
    assert page == printed
    states = [state for operator in page["operators"] for state in operator["states"]]
    assert all(state["queryable"] == "" for state in states)
