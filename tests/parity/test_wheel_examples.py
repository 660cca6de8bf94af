"""PyFlink's own DataStream examples run unmodified, and print PyFlink's lines.

The examples come from PyFlink's wheel (`make setup-pyflink-examples`); ``expected_examples/`` was
recorded by ``record.py`` under PyFlink 2.3.0. Those whose rows are random and without end are held
to what is true of any such rows.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from penstock.common import Types
from penstock.connectors.contracts.source import SplitRange
from penstock.table.datagen import datagen_source
from tests.conftest import made_or_skipped
from tests.parity import wheel_examples
from tests.parity.parity_common import ROOT, strip_subtask
from tests.parity.wheel_examples import ENDLESS, EXAMPLES, SERVERS, ExampleFiles, expected_path

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="session")
def files() -> ExampleFiles:
    return made_or_skipped(ExampleFiles.in_cache().required)


@pytest.fixture(scope="session")
def results(
    files: ExampleFiles, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """What every example printed; all of them share one process, and so one JVM."""
    directory = tmp_path_factory.mktemp("examples")
    path = directory / "results.json"
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "tests.parity.run_examples", str(path)],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": python_path, "TZ": "UTC"},
        capture_output=True,
        text=True,
        check=False,
    )
    outcome: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    message = f"the run ended with status {done.returncode}:\n{done.stderr[-4000:]}"
    for example in (*EXAMPLES, *ENDLESS):
        outcome.setdefault(example, {"output": "", "error": message})
    return outcome


def test_no_example_of_the_wheel_is_left_out(files: ExampleFiles) -> None:
    assert files.names() == sorted((*EXAMPLES, *ENDLESS, *SERVERS))
    assert [example for example in EXAMPLES if not expected_path(example).exists()] == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_prints_pyflinks_lines(example: str, results: dict[str, dict[str, Any]]) -> None:
    assert results[example]["error"] is None, results[example]["error"]
    expected = expected_path(example).read_text(encoding="utf-8").splitlines()
    assert wheel_examples.lines_of(results[example]["output"]) == expected


def lines_of_endless(example: str, results: dict[str, dict[str, Any]]) -> list[str]:
    """What it printed in order, behind the line that says where that goes."""
    assert results[example]["error"] is None, results[example]["error"]
    told, *lines = results[example]["output"].splitlines()
    assert told == "Printing result to stdout. Use --output to specify output path."
    assert len(lines) >= ENDLESS[example] - 1
    return [strip_subtask(line) for line in lines]


def test_the_endless_word_count_counts_each_word_without_gaps(
    files: ExampleFiles, results: dict[str, dict[str, Any]]
) -> None:
    source = files.path("streaming_word_count").read_text(encoding="utf-8")
    words = ast.literal_eval(source.split("words = ")[1].split("]")[0] + "]")
    seen: Counter[str] = Counter()
    for line in lines_of_endless("streaming_word_count", results):
        word = line.removeprefix("(").partition(",")[0]
        seen[word] += 1
        assert word in words
        assert line == f"({word},{seen[word]})"


def test_the_endless_inference_answers_each_row_of_its_table_once(
    results: dict[str, dict[str, Any]],
) -> None:
    lines = lines_of_endless("asyncio/remote_model_inference", results)
    answers = [json.loads(line) for line in lines]
    assert {tuple(answer) for answer in answers} == {("user_id", "comments", "analysis_result")}
    assert {answer["analysis_result"] for answer in answers} <= {"positive", None}
    row_type = Types.ROW_NAMED(["user_id", "comments"], [Types.INT(), Types.STRING()])
    (rows,) = datagen_source("source", row_type, {}).read(SplitRange("0", 0, len(answers)))
    asked = sorted((row.user_id, row.comments) for row in rows)
    assert sorted((answer["user_id"], answer["comments"]) for answer in answers) == asked
