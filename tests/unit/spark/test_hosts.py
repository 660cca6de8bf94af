"""Which hosts were really looked at, when Spark runs tasks elsewhere than they prefer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from penstock.spark.submit.hosts import Seen, look_at_hosts

WORK = Path("/work")
EXECUTORS = {"0": "worker-1", "1": "worker-2"}
LACKS = {"1"}


def running_on(*rounds: Sequence[str]) -> Callable[[Sequence[str]], list[Seen]]:
    """Tasks run on these executors, one round after the other."""
    left = iter(rounds)

    def look(hosts: Sequence[str]) -> list[Seen]:
        ran = next(left)
        assert len(ran) == len(hosts)
        return [Seen(e, f"name-of-{e}", (WORK,) if e in LACKS else ()) for e in ran]

    return look


def test_a_host_that_no_task_has_reached_is_looked_at_again() -> None:
    # Both tasks run on worker-1: worker-2 is busy.
    assert look_at_hosts(lambda: EXECUTORS, running_on(["0", "0"], ["1"])) == {WORK: "worker-2"}


def test_a_missing_path_is_told_with_the_host_where_the_task_ran() -> None:
    assert look_at_hosts(lambda: EXECUTORS, running_on(["1", "1"], ["0"])) == {WORK: "worker-2"}


def test_a_host_that_is_always_busy_is_named(caplog: pytest.LogCaptureFixture) -> None:
    assert look_at_hosts(lambda: EXECUTORS, running_on(["0", "0"], ["0"], ["0"])) == {}
    assert "Hosts worker-2 were too busy to be looked at" in caplog.text


def test_an_executor_that_registers_meanwhile_is_looked_at() -> None:
    known = [{"0": "worker-1"}, EXECUTORS, EXECUTORS]
    found = look_at_hosts(lambda: known.pop(0), running_on(["0"], ["1"]))
    assert found == {WORK: "worker-2"}


def test_without_ids_of_executors_tasks_are_taken_to_run_where_they_prefer() -> None:
    seen = [Seen("", "worker-1", ()), Seen("", "other", (WORK,))]
    assert look_at_hosts(lambda: EXECUTORS, lambda _: seen) == {WORK: "other"}
