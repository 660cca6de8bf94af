"""Every example runs, and prints what it should."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import plans_of
from tests.spark import run_examples
from tests.spark.run_examples import EXAMPLES

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

Results = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    directory = tmp_path_factory.mktemp("examples")
    path = directory / "results.json"
    with (directory / "log").open("w") as log:
        subprocess.run(
            [sys.executable, run_examples.__file__, str(path)],
            cwd=directory,
            stdout=log,
            stderr=log,
            check=False,
        )
    found: Results = json.loads(path.read_text()) if path.exists() else {}
    found["log"] = {"output": (directory / "log").read_text()[-4000:], "error": None}
    return found


def printed(results: Results, name: str) -> list[str]:
    """Return the lines a run printed, without the number of the subtask in front."""
    assert name in results, results["log"]["output"]
    assert results[name]["error"] is None, results[name]["error"]
    return [re.sub(r"^\d+> ", "", line) for line in results[name]["output"].splitlines()]


def test_word_count_counts_a_file(results: Results) -> None:
    assert sorted(printed(results, "word_count")) == [
        "(be,1)",
        "(be,2)",
        "(not,1)",
        "(or,1)",
        "(to,1)",
        "(to,2)",
    ]


def test_word_count_counts_a_socket_until_it_closes(results: Results) -> None:
    lines = printed(results, "word_count from a socket")
    assert [line for line in lines if line.startswith("(a,")] == ["(a,1)", "(a,2)", "(a,3)"]
    assert sorted(lines)[-1] == "(without,1)"
    assert len(lines) == 10


def test_keyed_state_shows_all_states(results: Results) -> None:
    lines = printed(results, "keyed_state")
    assert len(lines) == 5
    assert lines[3] == (
        "ann: tea after cake, prices [4, 7, 4], items {'cake': 1, 'tea': 2}, dearest 7, "
        "mean 5.0, checksum b'\\xfc\\xb6\\xec\\x10'"
    )
    assert lines[4].startswith("bob: tea after milk, prices [1, 5], ")


def test_rolling_aggregates_emit_always_or_once(results: Results) -> None:
    lines = printed(results, "rolling_aggregates")
    middle = lines.index("-- BATCH")
    streaming = [line for line in lines[1:middle] if line.startswith("sum> (oslo")]
    assert streaming == ["sum> (oslo,5,mon)", "sum> (oslo,7,mon)", "sum> (oslo,14,mon)"]
    assert middle == 1 + 3 * 5
    assert sorted(lines[middle + 1 :]) == [
        "max> (oslo,7,mon)",
        "max> (rome,9,mon)",
        "max_by> (oslo,7,wed)",
        "max_by> (rome,9,tue)",
        "sum> (oslo,14,mon)",
        "sum> (rome,12,mon)",
    ]


def test_files_to_files_writes_complete_files(results: Results) -> None:
    assert sum(int(line.split()[1]) for line in printed(results, "files_to_files")) == 2
    assert printed(results, "files written") == [
        "A LONG ENOUGH LINE OF A.TXT",
        "A LONG ENOUGH LINE OF B.TXT",
    ]


def test_generator_is_cancelled_with_its_counters(results: Results) -> None:
    lines = printed(results, "generator")
    assert lines[:2] == ["while it runs: RUNNING", "then: job 'dice' was cancelled"]
    thrown, sixes = map(int, re.findall(r"\d+", lines[2]))
    # 200 a second for 4 seconds is all there can be; how much of it depends on the machine.
    assert 0 < thrown <= 1000
    assert thrown // 6 <= sixes <= thrown // 6 + 1


def test_dataframe_source_goes_on_from_a_join(results: Results) -> None:
    assert printed(results, "dataframe_source") == ["[('ink', 9.0), ('tea', 17.5)]"]


def test_demo_agrees_with_its_recount(results: Results) -> None:
    lines = printed(results, "demo")
    assert "the counts and the recount agree: lost 0, doubled 0" in lines
    assert any(line.startswith("sent 2000 lines") for line in lines)
    assert any("stage 2  micro-batch   1" in line for line in lines)
    assert not any("WARN" in line or "log4j" in line for line in lines)


def test_the_demo_would_notice_lost_and_doubled_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    updates = runpy.run_path(str(EXAMPLES / "demo.py"))["Updates"]()
    updates.take([("a", 1), ("a", 2), ("a", 2), ("b", 1), ("ghost", 1)])
    assert updates.lost_and_doubled(Counter(a=3, b=1)) == (1, 2)


def test_no_example_is_left_out_and_all_are_short() -> None:
    runs = Path(run_examples.__file__).read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f'run("{path.stem}"' in runs
        assert path.stem == "demo" or len(path.read_text().splitlines()) <= 60


def test_examples_can_be_explained_without_running() -> None:
    (plan,) = plans_of(EXAMPLES / "word_count.py", ())
    assert [s.name for s in plan.stages] == [
        "Source: lines -> FlatMap",
        "KEYED PROCESS -> Print to Std. Out",
    ]
    assert len(plans_of(EXAMPLES / "generator.py", ("0",))) == 1
