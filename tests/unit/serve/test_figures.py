"""What the driver reports, as Flink's calls show it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from penstock.checkpoint.history import ExceptionRecord, History
from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.job_facts import JobFacts, PlannedInput, PlannedStep
from penstock.common.live_figures import (
    DriverInfo,
    ExecutorInfo,
    LiveFigures,
    OperatorFigures,
    StageFigures,
    SubtaskFigures,
)
from penstock.common.metric_values import MetricInfo
from penstock.serve.jobs.hex_ids import hex_id
from tests.unit.cli.job_fixtures import end, endless_job, job_directory, set_driver
from tests.unit.serve.serve_fixtures import get, server
from tests.unit.support import eventually

PLAN = [
    PlannedStep("numbers", "Source: numbers", 2, "source", 0, 128),
    PlannedStep("map", "Map", 2, "map", 0, 128, "doubles", [PlannedInput("numbers", "forward")]),
    PlannedStep(
        "count", "Count", 3, "keyed_process", 1, 128, "", [PlannedInput("map", "hash", channel=0)]
    ),
]
STAGES = ["Source: numbers -> Map", "Count"]


def subtask(index: int, blocked: float, records: float, executor: str = "1") -> SubtaskFigures:
    metrics = {
        "numRecordsIn": records,
        "numRecordsOut": 2 * records,
        "numBytesIn": 10 * records,
        "numBytesOut": 20 * records,
        "backPressuredTimeMsPerSecond": blocked,
        "busyTimeMsPerSecond": 300.0,
        "idleTimeMsPerSecond": 700.0 - blocked,
        "accumulateBusyTimeMs": 1500.0,
        "currentInputWatermark": 1_700_000_000_000.0 + index,
    }
    return SubtaskFigures(index, executor, f"host-{executor}", metrics)


def figures(**changes: Any) -> LiveFigures:
    source = StageFigures(
        0,
        STAGES[0],
        ["numbers", "map"],
        2,
        128,
        is_source=True,
        subtasks=[subtask(0, 50.0, 100.0), subtask(1, 600.0, 300.0, "2")],
        operators=[OperatorFigures("map", "Map", {0: {"numRecordsIn": 7.0}})],
    )
    count = StageFigures(1, STAGES[1], ["count"], 3, 128, subtasks=[subtask(0, 0.0, 5.5)])
    values: dict[str, Any] = {
        "time": time.time(),
        "attempt": "a1",
        "job": {"numRestarts": 2.0, "lastCheckpointDuration": 12.5},
        "stages": [source, count],
        "executors": [
            ExecutorInfo("1", "host-1", 4, {0: [0], 1: [0]}, 1 << 30, 1 << 20),
            ExecutorInfo("2", "host-2", 4, {0: [1]}),
        ],
        "driver": DriverInfo("host-0", 1),
        "user": [
            MetricInfo("Count", "count", "late", "counter", count=5),
            MetricInfo("Count", "count", "open windows", "gauge", subtasks={2: 9.0}),
        ],
    }
    return LiveFigures(**(values | changes))


@pytest.fixture
def job(tmp_path: Path) -> JobDir:
    job = job_directory(tmp_path, "count", name="word count")
    job.write_facts(JobFacts("word count", 1_000.0, plan=PLAN, stages=STAGES))
    set_driver(job, pid=1)
    job.write_live(figures())
    return job


@pytest.fixture
def client(job: JobDir, tmp_path: Path) -> Iterator[TestClient]:
    with server(tmp_path) as client:
        yield client


VERTICES = f"/jobs/{hex_id('count')}/vertices"
SOURCE = f"{VERTICES}/{hex_id('numbers')}"


def test_a_job_has_its_vertices_with_their_metrics_and_the_edges_between_them(
    client: TestClient,
) -> None:
    found = get(client, "/jobs/count")
    assert [vertex["name"] for vertex in found["vertices"]] == STAGES
    assert found["vertices"][0]["metrics"] == {
        "read-bytes": 4000,
        "read-bytes-complete": True,
        "write-bytes": 8000,
        "write-bytes-complete": True,
        "read-records": 400,
        "read-records-complete": True,
        "write-records": 800,
        "write-records-complete": True,
        "accumulated-backpressured-time": 0,
        "accumulated-idle-time": 0,
        "accumulated-busy-time": 3000,
    }
    # Two of its subtasks have not reported.
    assert found["vertices"][1]["metrics"]["read-records-complete"] is False
    assert found["maxParallelism"] == 128
    assert found["vertices"][1]["tasks"]["RUNNING"] == 3
    nodes = found["plan"]["nodes"]
    assert [node["description"] for node in nodes] == STAGES
    (edge,) = nodes[1]["inputs"]
    assert (edge["id"], edge["ship_strategy"]) == (nodes[0]["id"], "HASH")
    assert nodes[0]["inputs"] == []
    assert [len(n["inputs"]) for n in found["stream-graph"]["nodes"]] == [0, 1, 1]
    assert found["penstock-live-stale"] is False


def test_figures_of_a_driver_that_does_not_answer_are_marked_stale(
    client: TestClient, job: JobDir
) -> None:
    job.write_live(figures(time=time.time() - 60))
    found = get(client, "/jobs/count")
    assert found["penstock-live-stale"] is True
    assert found["vertices"][0]["metrics"]["read-records"] == 400
    assert get(client, f"{SOURCE}/backpressure")["status"] == "deprecated"
    assert get(client, "/taskmanagers") == {"taskmanagers": []}


def test_metrics_of_a_driver_that_does_not_report_are_unknown_and_totals_are_marked(
    client: TestClient, job: JobDir
) -> None:
    count = f"{VERTICES}/count"
    for path in ("/jobs/count/accumulators", f"{count}/accumulators", f"{count}/taskmanagers"):
        assert get(client, path)["penstock-live-stale"] is False
    # Its process is gone: what it has reported is as new as before.
    set_driver(job, pid=2**22)
    for path in ("/jobs/count/metrics", f"{SOURCE}/metrics", f"{SOURCE}/subtasks/0/metrics"):
        for query in ("", "?get=numRestarts,0.numRecordsIn,numRecordsIn"):
            assert get(client, path + query) == [], path
    assert get(client, f"{SOURCE}/subtasks/metrics?get=busyTimeMsPerSecond") == []
    assert get(client, f"{SOURCE}/watermarks") == []
    accumulators = get(client, "/jobs/count/accumulators")
    assert len(accumulators["user-task-accumulators"]) == 1
    assert accumulators["penstock-live-stale"] is True
    for path in (f"{count}/accumulators", f"{count}/taskmanagers", f"{SOURCE}/subtasks/0"):
        assert get(client, path)["penstock-live-stale"] is True


def test_a_long_list_of_subtasks_costs_nothing(client: TestClient) -> None:
    path = f"{SOURCE}/subtasks/metrics?get=numRecordsIn&agg=sum&subtasks="
    ranges = ",".join(f"{n}-9999999" for n in range(1, 1000))
    began = time.process_time()
    assert get(client, path + ranges) == [{"id": "numRecordsIn", "sum": 300}]
    assert get(client, f"{path}{'0-99999,' * 1000}")[0]["sum"] == 400
    assert time.process_time() - began < 1


def test_a_job_between_two_attempts_is_restarting(client: TestClient, job: JobDir) -> None:
    job.write_live(figures(status="RESTARTING"))
    assert get(client, "/jobs/count/status") == {"status": "RESTARTING"}
    assert get(client, "/jobs/overview")["jobs"][0]["state"] == "RESTARTING"


def test_backpressure_has_flinks_levels_and_the_worst_subtask_decides(client: TestClient) -> None:
    found = get(client, f"{SOURCE}/backpressure")
    assert (found["status"], found["backpressureLevel"]) == ("ok", "high")
    assert found["backpressure-level"] == "high"
    first, second = found["subtasks"]
    assert (first["backpressureLevel"], first["ratio"]) == ("ok", 0.05)
    assert (second["backpressureLevel"], second["ratio"], second["busyRatio"]) == ("high", 0.6, 0.3)


def test_watermarks_are_texts_by_subtask(client: TestClient) -> None:
    assert get(client, f"{SOURCE}/watermarks") == [
        {"id": "0.currentInputWatermark", "value": "1700000000000"},
        {"id": "1.currentInputWatermark", "value": "1700000000001"},
    ]


def test_subtasks_run_on_executors(client: TestClient) -> None:
    found = get(client, SOURCE)
    assert [s["endpoint"] for s in found["subtasks"]] == ["host-1", "host-2"]
    assert [s["taskmanager-id"] for s in found["subtasks"]] == ["count-1", "count-2"]
    assert found["aggregated"]["metrics"]["read-records"]["sum"] == 400
    assert found["aggregated"]["metrics"]["read-records"]["median"] == 200
    one = get(client, f"{SOURCE}/subtasks/1")
    assert one == get(client, f"{SOURCE}/subtasks/1/attempts/0") | {"duration": one["duration"]} | {
        "status-duration": one["status-duration"]
    }
    by_host = get(client, f"{SOURCE}/taskmanagers")["taskmanagers"]
    assert [(t["endpoint"], t["metrics"]["read-records"]) for t in by_host] == [
        ("host-1", 100),
        ("host-2", 300),
    ]
    assert len(get(client, f"{SOURCE}/subtasktimes")["subtasks"]) == 2
    assert client.get(f"{SOURCE}/subtasks/2").status_code == 404
    assert client.get(f"{SOURCE}/subtasks/0/attempts/5").status_code == 404


def test_metrics_of_a_job_have_flinks_names_and_texts_as_values(client: TestClient) -> None:
    path = "/jobs/count/metrics"
    assert get(client, path) == [{"id": "lastCheckpointDuration"}, {"id": "numRestarts"}]
    assert get(client, f"{path}?get=numRestarts,lastCheckpointDuration,nothing") == [
        {"id": "numRestarts", "value": "2"},
        {"id": "lastCheckpointDuration", "value": "12.5"},
    ]


def test_metrics_of_a_vertex_name_subtask_and_operator(client: TestClient) -> None:
    names = [metric["id"] for metric in get(client, f"{SOURCE}/metrics")]
    assert {"0.numRecordsIn", "1.numRecordsIn", "0.Map.numRecordsIn"} <= set(names)
    assert get(client, f"{SOURCE}/metrics?get=0.Map.numRecordsIn") == [
        {"id": "0.Map.numRecordsIn", "value": "7"}
    ]
    assert get(client, f"{SOURCE}/subtasks/1/metrics?get=numRecordsIn") == [
        {"id": "numRecordsIn", "value": "300"}
    ]
    gauge = "2.Count.open_windows"
    assert get(client, f"{VERTICES}/count/metrics?get={gauge}") == [{"id": gauge, "value": "9"}]
    assert get(client, f"{SOURCE}/jm-operator-metrics") == []


def test_metrics_are_aggregated_over_subtasks_and_jobs(client: TestClient) -> None:
    path = f"{SOURCE}/subtasks/metrics?get=numRecordsIn"
    assert get(client, path) == [
        {"id": "numRecordsIn", "min": 100, "max": 300, "avg": 200, "sum": 400, "skew": 50}
    ]
    assert get(client, f"{path}&agg=max,min") == [{"id": "numRecordsIn", "min": 100, "max": 300}]
    assert get(client, f"{path}&subtasks=1-3&agg=sum") == [{"id": "numRecordsIn", "sum": 300}]
    assert get(client, f"{path},nothing") == []
    assert client.get(f"{path}&agg=median").status_code == 400
    assert client.get(f"{path}&subtasks=x").status_code == 400
    jobs = "/jobs/metrics?get=numRestarts&agg=sum"
    assert get(client, jobs) == [{"id": "numRestarts", "sum": 2}]
    assert get(client, f"{jobs}&jobs={hex_id('count')},count") == [{"id": "numRestarts", "sum": 4}]
    assert client.get(f"{jobs}&jobs=x").status_code == 404


def test_executors_are_task_managers_with_slots(client: TestClient) -> None:
    overview = get(client, "/overview")
    assert (overview["taskmanagers"], overview["slots-total"]) == (2, 8)
    assert overview["slots-available"] == 5
    first, second = get(client, "/taskmanagers")["taskmanagers"]
    assert (first["id"], first["slotsNumber"], first["freeSlots"]) == ("count-1", 4, 2)
    assert first["penstock-subtasks"] == {"0": [0], "1": [0]}
    assert second["id"] == "count-2"
    one = get(client, "/taskmanagers/count-1")
    assert one["metrics"]["heapMax"] == 1 << 30
    assert one["allocatedSlots"][0]["jobId"] == hex_id("count")
    heap = "Status.JVM.Memory.Heap.Used"
    assert get(client, f"/taskmanagers/count-1/metrics?get={heap}")[0]["value"] == str(1 << 20)
    metrics = f"/taskmanagers/metrics?get={heap}&agg=max&taskmanagers=count-1,count-2"
    assert get(client, metrics) == [{"id": heap, "max": float(1 << 20)}]
    assert client.get("/taskmanagers/nobody").status_code == 404
    slots = get(client, "/jobmanager/metrics?get=taskSlotsTotal,numRunningJobs")
    assert [metric["value"] for metric in slots] == ["8", "1"]


def test_counters_of_functions_are_accumulators(client: TestClient) -> None:
    counter = {"name": "Count.late", "type": "LongCounter", "value": "5"}
    found = get(client, "/jobs/count/accumulators")
    assert found["user-task-accumulators"] == [counter]
    assert get(client, f"{VERTICES}/count/accumulators")["user-accumulators"] == [counter]
    assert get(client, f"{SOURCE}/accumulators")["user-accumulators"] == []


def test_exceptions_are_shown_newest_first_and_filtered(client: TestClient, job: JobDir) -> None:
    history = History(job.storage)
    for number in range(1, 4):
        traceback = f'Traceback\n  File "job.py", line {number}\nmy.errors.BadError: no {number}'
        step = "Count" if number > 1 else None
        history.add_exception(
            ExceptionRecord(float(number), f"a{number}", step, f"no {number}", traceback)
        )
    path = "/jobs/count/exceptions"
    found = get(client, path)["exceptionHistory"]
    assert [entry["timestamp"] for entry in found["entries"]] == [3000, 2000, 1000]
    assert found["entries"][0]["exceptionName"] == "my.errors.BadError"
    assert found["entries"][0]["taskName"] == "Count"
    assert "taskName" not in found["entries"][2]
    assert found["truncated"] is False
    cut = get(client, f"{path}?maxExceptions=1")["exceptionHistory"]
    assert (len(cut["entries"]), cut["truncated"]) == (1, True)
    one = get(client, f"{path}?failureLabelFilter=attempt:a2")["exceptionHistory"]["entries"]
    assert [entry["penstock-message"] for entry in one] == ["no 2"]
    assert client.get(f"{path}?maxExceptions=x").status_code == 400
    assert client.get(f"{path}?failureLabelFilter=x").status_code == 400


def test_settings_of_checkpoints_are_those_of_the_job(client: TestClient, job: JobDir) -> None:
    settings = {
        "execution.checkpointing.interval": "3 s",
        "execution.checkpointing.dir": "/data",
        "execution.checkpointing.unaligned.enabled": "true",
        "state.backend.type": "rocksdb",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    job.write_facts(JobFacts("word count", 1_000.0, plan=PLAN, stages=STAGES, settings=settings))
    found = get(client, "/jobs/count/checkpoints/config")
    assert (found["mode"], found["interval"], found["min_pause"]) == ("exactly_once", 3000, 0)
    assert found["externalization"] == {"enabled": True, "delete_on_cancellation": False}
    assert (found["state_backend"], found["unaligned_checkpoints"]) == ("rocksdb", True)
    config = get(client, "/jobs/count/config")["execution-config"]
    assert (config["job-parallelism"], config["user-config"]) == (3, settings)
    entries = get(client, "/jobs/count/jobmanager/config")
    assert {"key": "state.backend.type", "value": "rocksdb"} in entries


def test_without_checkpoints_there_are_no_statistics(client: TestClient, job: JobDir) -> None:
    facts = JobFacts("word count", 1_000.0, plan=PLAN, settings={"parallelism.default": "2"})
    job.write_facts(facts)
    for path in ("checkpoints", "checkpoints/config"):
        assert client.get(f"/jobs/count/{path}").status_code == 404


def test_the_figures_of_a_running_job_arrive_in_all_calls(tmp_path: Path) -> None:
    running = endless_job(tmp_path, execution__checkpointing__interval="100 ms")
    with server(tmp_path) as client:
        try:
            eventually(lambda: get(client, "/jobs/overview")["jobs"][0]["state"] == "RUNNING")
            job = get(client, "/jobs")["jobs"][0]["id"]

            def read_records() -> list[int]:
                vertices = get(client, f"/jobs/{job}")["vertices"]
                return [vertex["metrics"]["read-records"] for vertex in vertices]

            eventually(lambda: min(read_records()) > 0)
            source, count = (vertex["id"] for vertex in get(client, f"/jobs/{job}")["vertices"])
            path = f"/jobs/{job}/vertices/{source}"
            eventually(lambda: get(client, f"{path}/backpressure")["status"] == "ok")
            ratios = get(client, f"{path}/backpressure")["subtasks"]
            assert all(0 <= ratio["busyRatio"] <= 1 for ratio in ratios)
            wanted = "numRecordsInPerSecond"
            (rate,) = get(client, f"/jobs/{job}/vertices/{count}/subtasks/metrics?get={wanted}")
            assert rate["sum"] > 0
            names = {metric["id"] for metric in get(client, f"/jobs/{job}/metrics")}
            assert {"numRestarts", "numberOfCompletedCheckpoints", "uptime"} <= names
            names = {metric["id"] for metric in get(client, f"{path}/metrics")}
            assert {"0.numRecordsIn", "0.Map.numRecordsIn", "1.busyTimeMsPerSecond"} <= names
        finally:
            end(running)
