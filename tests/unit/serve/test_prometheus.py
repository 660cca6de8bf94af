"""Figures as Prometheus scrapes them: Flink's names and labels, each series once."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.common import Types
from penstock.common.live_figures import LiveFigures
from penstock.common.text.tolerant_json import decode_json, encode_json
from penstock.datastream import MapFunction, RuntimeContext
from penstock.datastream.connectors import DiscardingSink
from penstock.job.figures import job_monitor, stage_monitor
from penstock.serve.http.tokens import read_tokens
from penstock.serve.prometheus.samples import JobSnapshot
from penstock.serve.prometheus.text import CONTENT_TYPE, render
from tests.unit.cli.job_fixtures import end, endless_job
from tests.unit.serve.serve_fixtures import server
from tests.unit.support import environment, eventually

DASHBOARD = Path(__file__).parents[3] / "examples" / "grafana" / "penstock.json"
NAME = 'a "job"\\\nof \u00fc'
Series = dict[str, list[tuple[dict[str, str], float]]]


class Measured(MapFunction[int, int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        self.seen = group.add_group("of", "day").counter("seen-it")
        self.late = group.counter("numLateRecordsDropped")
        self.events = group.meter("events", 10)
        self.values = group.distribution("values")
        group.gauge("last", lambda: 7)
        # Names that become the same, and what is no number: neither breaks anything else.
        group.gauge("same.name", lambda: 1)
        group.gauge("same_name", lambda: 2)
        group.gauge("nothing", lambda: math.nan)
        group.distribution("endless").update(math.inf)

    def map(self, value: int) -> int:
        self.seen.inc()
        self.late.inc()
        self.events.mark_event()
        self.values.update(value)
        return value


@pytest.fixture(scope="module")
def figures() -> LiveFigures:
    env = environment(parallelism=2)
    numbers = env.from_collection(range(10), Types.LONG()).name("numbers").rebalance()
    stream = numbers.map(Measured(), Types.LONG()).name("measured").uid("m")
    stream.sink_to(DiscardingSink()).name("sink").uid("s")
    client = env.execute_async("job")
    client.get_job_execution_result().result()
    return client.get_live_figures()


def test_figures_with_any_numbers_can_be_written_and_read(figures: LiveFigures) -> None:
    read = decode_json(encode_json(figures), LiveFigures)
    assert [m.name for m in read.user] == [m.name for m in figures.user]


def series_of(*jobs: JobSnapshot) -> Series:
    found: Series = {}
    for family in text_string_to_metric_families(render(jobs).decode()):
        assert family.name not in found
        found[family.name] = [(sample.labels, sample.value) for sample in family.samples]
    return found


@pytest.fixture(scope="module")
def series(figures: LiveFigures) -> Series:
    return series_of(JobSnapshot("a" * 32, NAME, figures), JobSnapshot("b" * 32, NAME, figures))


def test_every_series_is_there_once(series: Series) -> None:
    seen = Counter((name, *sorted(labels.items())) for name in series for labels, _ in series[name])
    assert max(seen.values()) == 1


def test_metrics_of_operators_have_the_names_and_labels_of_flink(series: Series) -> None:
    found = series["flink_taskmanager_job_task_operator_numRecordsIn"]
    mine = [(la, v) for la, v in found if la["job_id"] == "a" * 32 and la["operator_id"] == "m"]
    assert [la["subtask_index"] for la, _ in mine] == ["0", "1"]
    assert sum(value for _, value in mine) == 10
    labels, _ = mine[0]
    assert labels.keys() == {
        "job_id",
        "job_name",
        "task_id",
        "task_name",
        "subtask_index",
        "tm_id",
        "host",
        "operator_id",
        "operator_name",
    }
    assert (labels["job_name"], labels["operator_name"]) == (NAME, "measured")
    assert labels["task_name"] == "measured -> sink"
    assert labels["host"]


def test_metrics_of_job_and_tasks_are_in_their_scopes(series: Series) -> None:
    job = series["flink_jobmanager_job_numRestarts"]
    assert [la["job_id"][0] for la, _ in job] == ["a", "b"]
    tasks = series["flink_taskmanager_job_task_busyTimeMsPerSecond"]
    assert "operator_id" not in tasks[0][0]
    assert series["flink_jobmanager_numRunningJobs"] == [({}, 2.0)]


def test_user_metrics_of_every_kind_are_metrics_of_their_operator(series: Series) -> None:
    def values(name: str) -> list[float]:
        found = series[f"flink_taskmanager_job_task_operator_{name}"]
        return [v for la, v in found if la["job_id"] == "a" * 32 and la["operator_id"] == "m"]

    assert sum(values("of_day_seen_it")) == 10
    assert values("last") == [7, 7]
    assert values("same_name") == [1, 1]
    assert sum(values("numLateRecordsDropped")) == 10
    assert values("events") == [1.0]
    assert [values(f"values_{part}") for part in ("count", "min", "max", "mean")] == [
        [10],
        [0],
        [9],
        [4.5],
    ]


def test_no_jobs_are_a_valid_answer() -> None:
    assert series_of() == {"flink_jobmanager_numRunningJobs": [({}, 0.0)]}
    assert CONTENT_TYPE.startswith("text/plain")


def test_running_jobs_are_scraped_and_others_are_not(tmp_path: Path) -> None:
    client = endless_job(tmp_path)
    with server(tmp_path) as http:
        first = http.get("/metrics")
        assert first.status_code == 200
        assert first.headers["content-type"] == CONTENT_TYPE
        found = {f.name: f.samples for f in text_string_to_metric_families(first.text)}
        (running,) = found["flink_jobmanager_numRunningJobs"]
        assert running.value == 1
        tasks = found["flink_taskmanager_job_task_numRecordsIn"]
        assert {sample.labels["job_name"] for sample in tasks} == {"endless"}
        (job,) = http.get("/jobs").json()["jobs"]
        assert {sample.labels["job_id"] for sample in tasks} == {job["id"]}
        end(client)
        eventually(lambda: "endless" not in http.get("/metrics").text)


def test_a_scrape_needs_a_token_where_the_api_does(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"reader {'r' * 32}\n")
    file.chmod(0o600)
    with server(tmp_path, tokens=read_tokens(file)) as http:
        assert http.get("/metrics").status_code == 401
        header = {"Authorization": f"Bearer {'r' * 32}"}
        assert http.get("/metrics", headers=header).status_code == 200


def test_the_dashboard_for_grafana_asks_for_metrics_that_there_are(series: Series) -> None:
    board = json.loads(DASHBOARD.read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    asked += [v["query"]["query"] for v in board["templating"]["list"] if v["type"] == "query"]
    names = {name for text in asked for name in re.findall(r"(?:flink|penstock)_\w+", text)}
    assert len(names) > 15
    code = Path(stage_monitor.__file__).read_text() + Path(job_monitor.__file__).read_text()
    unknown = names - series.keys() - {"penstock_channel_records"}
    assert {name for name in unknown if f'"{name.rpartition("_")[2]}"' not in code} == set()
    labels = {
        label
        for text in asked
        for group in re.findall(r"by \(([^)]*)\)", text)
        for label in group.split(", ")
    }
    assert labels == {"job_name", "task_name", "operator_name"}
