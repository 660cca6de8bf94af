"""PyFlink's own DataStream examples run unmodified, and print PyFlink's lines.

The examples come from PyFlink's wheel (`make setup-pyflink-examples`); ``expected_examples/`` was
recorded by ``record.py`` under PyFlink 2.3.0.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import made_or_skipped
from tests.parity import wheel_examples
from tests.parity.parity_common import ROOT
from tests.parity.wheel_examples import EXAMPLES, SERVERS, TABLES, ExampleFiles, expected_path

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
    for example in (*EXAMPLES, *TABLES):
        outcome.setdefault(example, {"output": "", "error": message})
    return outcome


def test_no_example_of_the_wheel_is_left_out(files: ExampleFiles) -> None:
    assert files.names() == sorted((*EXAMPLES, *TABLES, *SERVERS))
    assert [example for example in EXAMPLES if not expected_path(example).exists()] == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_prints_pyflinks_lines(example: str, results: dict[str, dict[str, Any]]) -> None:
    assert results[example]["error"] is None, results[example]["error"]
    expected = expected_path(example).read_text(encoding="utf-8").splitlines()
    assert wheel_examples.lines_of(results[example]["output"]) == expected


@pytest.mark.parametrize("example", TABLES)
def test_an_example_of_tables_is_refused_with_one_sentence(
    example: str, results: dict[str, dict[str, Any]]
) -> None:
    assert "Error: pyflink.table.StreamTableEnvironment is not in" in results[example]["error"]
    assert results[example]["error"].count("\n") == 1
