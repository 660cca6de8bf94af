from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.storage.job_facts import PlannedInput, PlannedStep
from penstock.serve.dashboard import advice_page, state_page
from penstock.serve.dashboard.planned_graph import shown_graph
from penstock.serve.jobs.cached_job import JobView
from tests.unit.cli.job_fixtures import end, endless_job
from tests.unit.serve.serve_fixtures import get, server
from tests.unit.support import eventually

GOLDEN = Path(__file__).parents[2] / "golden" / "jobs" / "v1"
LIST = "/v1/penstock/jobs"


def golden(directory: Path, *names: str) -> None:
    for name in names:
        (found,) = (GOLDEN / name / "checkpoints").iterdir()
        shutil.copytree(found, directory / name)


def test_the_list_has_status_and_newest_checkpoint_of_every_job(tmp_path: Path) -> None:
    golden(tmp_path, "failed", "finished", "rocksdb")
    with server(tmp_path) as client:
        jobs = {job["id"]: job for job in get(client, LIST)["jobs"]}
    assert {id_: job["status"] for id_, job in jobs.items()} == {
        "failed": "FAILED",
        "finished": "FINISHED",
        "rocksdb": "DIED",
    }
    assert jobs["rocksdb"]["last_checkpoint"]["full_bytes"] > 100_000
    assert jobs["rocksdb"]["ended"] is None
    assert jobs["finished"]["ended"] > jobs["finished"]["started"]
    assert all(job["is_stale"] and job["records_in_per_s"] is None for job in jobs.values())


def test_a_running_job_is_watched_and_shown_with_its_graph(tmp_path: Path) -> None:
    job = endless_job(tmp_path, execution__checkpointing__interval="100 ms")
    (directory,) = tmp_path.iterdir()
    path = f"{LIST}/{directory.name}"
    with server(tmp_path) as client:
        eventually(lambda: not get(client, path)["is_stale"])
        shown = get(client, path)
        assert shown["job"]["status"] == "RUNNING"
        assert shown["job"]["interval_s"] == 0.1
        edges = shown["plan"]["edges"]
        stages = {stage["stage"]: stage for stage in shown["plan"]["stages"]}
        assert len(edges) == len(stages) - 1 > 0
        assert stages[edges[0]["from"]]["is_source"]
        assert {c["id"] for c in shown["live"]["channels"]} == {e["channel"] for e in edges}
        assert "blocked_at" in shown["live"]["channels"][0], "the name that the code has"
        assert shown["attempts"][0]["attempt"] == "a1"
        eventually(lambda: get(client, f"{LIST}")["jobs"][0]["records_in_per_s"] is not None)
    end(job)


def test_checkpoints_are_listed_in_order_and_one_has_subtasks_and_events(tmp_path: Path) -> None:
    golden(tmp_path, "in-flight")
    with server(tmp_path) as client:
        listed = get(client, f"{LIST}/in-flight/checkpoints")
        (brief,) = listed["checkpoints"]
        assert (brief["id"], brief["status"], brief["barriers"]) == (1, "COMPLETED", "unaligned")
        assert listed["counts"]["completed"] == 1
        assert brief["in_flight_bytes"] == 35496
        one = get(client, f"{LIST}/in-flight/checkpoints/1")
        assert [e["event"] for e in one["events"]][:2] == ["triggered", "barrier seen"]
        subtasks = [s for operator in one["operators"] for s in operator["subtasks"]]
        assert len(subtasks) == brief["acknowledged"] == 4
        assert "blocked_bytes" in subtasks[0], "the name that the code has"


def test_checkpoints_that_are_not_there_are_not_found(tmp_path: Path) -> None:
    golden(tmp_path, "finished")
    with server(tmp_path) as client:
        for number in ("99", "x", "-1", "1e3", "²", "0" * 400, "1" * 5000, "..%2f..%2fjob"):
            found = client.get(f"{LIST}/finished/checkpoints/{number}")
            assert (found.status_code, "errors" in found.json()) == (404, True), number
        for call in ("", "/checkpoints", "/attempts", "/state", "/advice"):
            assert client.get(f"{LIST}/no-such-job{call}").status_code == 404


def test_attempts_have_their_recovery_and_failures(tmp_path: Path) -> None:
    golden(tmp_path, "failed")
    with server(tmp_path) as client:
        attempts = get(client, f"{LIST}/failed/attempts")["attempts"]
    assert (attempts[0]["attempt"], attempts[-1]["attempt"]) == ("a3", "a1")
    assert attempts[-1]["recovery"] is None
    assert attempts[0]["recovery"]["load_state_s"] >= 0
    assert "Traceback" in attempts[0]["exceptions"][0]["traceback"]
    assert attempts[0]["end"] == "The job ended: FAILED."
    assert attempts[1]["end"] is None


def test_the_sizes_by_key_group_are_those_of_the_states(tmp_path: Path) -> None:
    golden(tmp_path, "rocksdb")
    with server(tmp_path) as client:
        found = get(client, f"{LIST}/rocksdb/state")
    assert found["problem"] is None
    keyed = [o for o in found["snapshot"]["operators"] if o["states"]]
    assert keyed
    for operator in keyed:
        assert len(operator["key_groups"]) == operator["max_parallelism"]
        assert sum(operator["key_groups"]) == sum(state["bytes"] for state in operator["states"])


def test_the_state_of_a_job_whose_files_are_gone_is_a_sentence(tmp_path: Path) -> None:
    golden(tmp_path, "rocksdb")
    shutil.rmtree(next((tmp_path / "rocksdb").glob("chk-*")))
    with server(tmp_path) as client:
        found = get(client, f"{LIST}/rocksdb/state")
    assert found["snapshot"] is None
    assert "cannot be read" in found["problem"]


def test_a_state_that_takes_long_to_read_does_not_keep_other_calls_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden(tmp_path, "rocksdb", "in-flight", "savepoint")
    release, reads = threading.Event(), []
    real = state_page._read

    def slow(view: JobView, path: str) -> Any:
        reads.append(path)
        assert release.wait(30)
        return real(view, path)

    monkeypatch.setattr(state_page, "_read", slow)
    monkeypatch.setattr(state_page, "_WAIT_S", 0.2)
    with server(tmp_path) as client:
        answers: list[Any] = []

        def ask(name: str) -> None:
            answers.append(get(client, f"{LIST}/{name}/state"))

        names = ("rocksdb", "rocksdb", "rocksdb", "in-flight")
        threads = [threading.Thread(target=ask, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        eventually(lambda: len(answers) == 2)
        assert all("is being read" in answer["problem"] for answer in answers)
        assert get(client, "/overview")["jobs-running"] == 0
        release.set()
        for thread in threads:
            thread.join()
        assert len(reads) == 2
        assert get(client, f"{LIST}/rocksdb/state")["snapshot"] is not None


def test_a_model_that_fails_leaves_the_rest_of_the_page_and_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(advice_page, "advise_job", fail)
    golden(tmp_path, "finished")
    with server(tmp_path) as client:
        for _ in range(3):
            assert get(client, f"{LIST}/finished")["advice"] == {"interval_s": None}
            found = get(client, f"{LIST}/finished/advice")
            assert found["advice"] is None
            assert "No model fits" in found["problem"]
    assert caplog.text.count("gets no advice") == 1


def test_operators_become_stages_and_edges_only_between_stages() -> None:
    steps = [
        PlannedStep("a", "Source: a", 2, "source", 0, 128),
        PlannedStep("b", "Map", 2, "map", 0, 128, inputs=[PlannedInput("a", "forward")]),
        PlannedStep(
            "c", "count", 3, "process", 1, 64, inputs=[PlannedInput("b", "hash", 1, None, 5)]
        ),
    ]
    graph = shown_graph(steps)
    assert [(s.name, s.parallelism, s.is_source) for s in graph.stages] == [
        ("Source: a -> Map", 2, True),
        ("count", 3, False),
    ]
    (edge,) = graph.edges
    assert (edge.from_stage, edge.to_stage, edge.exchange, edge.channel) == (0, 1, "hash", 5)


def test_the_plan_of_an_older_version_is_no_graph() -> None:
    graph = shown_graph([PlannedStep("a", "Source: a", 2)])
    assert (graph.stages, graph.edges) == ([], [])


def test_advice_is_that_of_the_command_with_curves_around_it(tmp_path: Path) -> None:
    job = endless_job(tmp_path, execution__checkpointing__interval="100 ms")
    (directory,) = tmp_path.iterdir()
    path = f"{LIST}/{directory.name}"
    with server(tmp_path) as client:
        eventually(lambda: len(get(client, f"{path}/checkpoints")["checkpoints"]) > 5)
        found = get(client, f"{path}/advice")
        advice = found["advice"]
        assert found["goals"]["recovery_target_s"] == 60.0
        assert advice["verdict"] in ("fine", "change", "impossible")
        intervals = [point["interval_s"] for point in advice["curve"]]
        assert intervals == sorted(intervals)
        assert intervals[0] < advice["current"]["interval_s"] < intervals[-1]
        assert len(advice["observations"]) >= 3
        assert sum(bound["decides"] for bound in advice["bounds"]) >= 1
        parts = {part["label"]: part for part in advice["consistency"]["parts"]}
        assert parts["Checkpoint completes"]["trials"] > 5
        other = get(client, f"{path}/advice?visibility=2&overhead=0.5")
        assert other["goals"]["recovery_target_s"] is None
        assert "visibility" in [bound["kind"] for bound in other["advice"]["bounds"]]
    end(job)


def test_goals_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    golden(tmp_path, "finished")
    with server(tmp_path) as client:
        for goal in ("recovery_target=x", "visibility=-1", "overhead=nan", "overhead=1.5"):
            found = client.get(f"{LIST}/finished/advice?{goal}")
            assert found.status_code == 400, goal


def test_a_job_without_checkpoints_gets_no_advice(tmp_path: Path) -> None:
    golden(tmp_path, "summary")
    shutil.rmtree(tmp_path / "summary" / "history")
    with server(tmp_path) as client:
        assert get(client, f"{LIST}/summary/advice")["advice"] is None


def test_a_checkpoint_whose_driver_died_is_not_in_progress_for_ever(tmp_path: Path) -> None:
    golden(tmp_path, "rocksdb")
    (record,) = (tmp_path / "rocksdb" / "history").glob("0*.json")
    record.write_text(record.read_text().replace('"COMPLETED"', '"PENDING"'))
    with server(tmp_path) as client:
        listed = get(client, f"{LIST}/rocksdb/checkpoints")
        (found,) = listed["checkpoints"]
        one = get(client, f"{LIST}/rocksdb/checkpoints/{found['id']}")
    assert found["status"] == one["status"] == "FAILED"
    assert found["failure"] == "attempt a1 ended before the checkpoint was complete"
    assert (listed["counts"]["pending"], listed["counts"]["failed"]) == (0, 1)
