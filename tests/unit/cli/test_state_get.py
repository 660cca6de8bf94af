"""`penstock state get`: from files alone, of jobs and savepoints, and from the running job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.cli.exit_codes import ExitCode
from tests.golden.programs import states
from tests.unit.cli.job_fixtures import end, json_of, penstock
from tests.unit.serve.queryable.shop_job import start_shop
from tests.unit.support import eventually

GOLDEN = Path(__file__).parents[2] / "golden" / "jobs" / "v1"
BOOK = ("--operator", "KEYED PROCESS")


def place(name: str) -> Path:
    if name == "savepoint":
        (path,) = (GOLDEN / name).rglob("savepoint-*/_metadata")
        return path.parent
    return GOLDEN / name / "checkpoints" / states.JOB


@pytest.mark.parametrize("name", ["hashmap", "rocksdb", "memory", "savepoint"])
def test_a_key_is_looked_up_in_checkpoints_and_savepoints(name: str) -> None:
    found = json_of(
        penstock(
            "state", "get", place(name), *BOOK, "--state", "seen", "--key", 3, "--key", 99, "--json"
        )
    )
    assert [(k["key"], [e["map_key"] for e in k["entries"]]) for k in found["keys"]] == [
        (3, ["even", "odd"]),
        (99, []),
    ]
    shown = penstock("state", "get", place(name), *BOOK, "--state", "seen", "--key", 99)
    assert "no entry: 99" in shown.stdout


def test_pages_go_on_from_their_cursor() -> None:
    command = ("state", "get", place("hashmap"), *BOOK, "--state", "count", "--limit", 3)
    first = json_of(penstock(*command, "--json"))
    assert f"more: --after {first['next']}" in penstock(*command).stdout
    second = json_of(penstock(*command, "--after", first["next"], "--json"))
    keys = [entry["key"] for page in (first, second) for entry in page["entries"]]
    assert sorted(keys) == list(range(states.KEYS))


def test_the_running_job_is_asked_for_its_latest_state(tmp_path: Path) -> None:
    job = start_shop(tmp_path)
    command = ("state", "get", "shop", "--dir", tmp_path, "--operator", "orders", "--key", 3)

    def latest() -> Any:
        result = penstock(*command, "--state", "secret", "--latest", "--json")
        return json_of(result) if result.exit_code == 0 else None

    eventually(lambda: latest() is not None)
    assert latest()["level"] == "latest"
    eventually(lambda: penstock(*command, "--state", "orders").exit_code == 0)
    assert "count of orders: value state of LONG" in penstock(*command, "--state", "orders").stdout
    end(job)
    result = penstock(*command, "--state", "secret", "--latest")
    assert result.exit_code == ExitCode.FAILED
    assert "No driver is running job" in result.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--state", "count", "--key", "x"), "no key of type"),
        (("--state", "counts", "--key", "1"), "no keyed state"),
        (("--state", "count", "--key", "1", "--prefix", "x"), "--prefix is for scans"),
        (("--state", "count", "--latest", "--checkpoint", "1"), "exclude each other"),
        (("--state", "count", "--after", "x"), "is no cursor"),
    ],
)
def test_what_cannot_be_looked_up_says_why(options: tuple[str, ...], reason: str) -> None:
    result = penstock("state", "get", place("hashmap"), *BOOK, *options)
    assert result.exit_code != ExitCode.DONE
    assert reason in result.stderr
