"""`penstock metrics` of a running job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.commands.metrics import _row
from penstock.common import JobClient, MetricInfo
from tests.unit.cli.job_fixtures import end, endless_job, json_of, penstock


@pytest.fixture
def client(tmp_path: Path) -> Iterator[JobClient]:
    client = endless_job(tmp_path)
    yield client
    end(client)


def test_a_job_without_metrics_of_its_own_says_so(client: JobClient, tmp_path: Path) -> None:
    result = penstock("metrics", "endless", "--dir", tmp_path, "--user")
    assert (result.exit_code, result.stdout) == (0, "The functions of the job have no metrics.\n")
    assert json_of(penstock("metrics", "endless", "--dir", tmp_path, "--user", "--json")) == []


@pytest.mark.parametrize("options", [(), ("--builtin",)])
def test_built_in_metrics_are_shown_for_job_stages_and_operators(
    client: JobClient, tmp_path: Path, options: tuple[str, ...]
) -> None:
    result = penstock("metrics", "endless", "--dir", tmp_path, *options)
    assert result.exit_code == 0, result.output
    heads, *lines = result.stdout.splitlines()
    assert heads.split() == ["SCOPE", "STEP", "METRIC", "TOTAL", "SUBTASKS"]
    assert {line.split()[0] for line in lines} == {"job", "task", "operator"}
    found = json_of(penstock("metrics", "endless", "--dir", tmp_path, "--json", *options))
    counts = [m for m in found if m["name"] == "numRecordsIn" and m["scope"] == "task"]
    assert [sorted(m["subtasks"]) for m in counts] == [["0", "1"], ["0", "1"]]
    assert all(m["count"] == sum(m["subtasks"].values()) for m in counts)


@pytest.mark.parametrize(
    ("metric", "row"),
    [
        (MetricInfo("s", "u", "n", "counter", 1200), ("s", "n", "counter", "1,200", "-")),
        (
            MetricInfo("s", "u", "n", "meter", 5, 0.25),
            ("s", "n", "meter", "5", "0.25 per second"),
        ),
        (
            MetricInfo("s", "u", "n", "distribution", 4, None, 2.5, 1, 4),
            ("s", "n", "distribution", "4", "1 to 4, mean 2.5"),
        ),
        (
            MetricInfo("s", "u", "n", "gauge", subtasks={0: 1, 1: 2.5}),
            ("s", "n", "gauge", "-", "1, 2.5"),
        ),
    ],
    ids=["counter", "meter", "distribution", "gauge"],
)
def test_a_metric_is_a_row(metric: MetricInfo, row: tuple[str, ...]) -> None:
    assert tuple(_row(metric).values()) == row
