"""Programs written for PyFlink print the same lines on penstock as they did on PyFlink.

``expected/`` was recorded by ``record.py`` under PyFlink 2.3.0.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.parity.parity_common import (
    HERE,
    ROOT,
    expected_path,
    normalise,
    program_names,
)

pytestmark = pytest.mark.spark


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What every program printed; all of them share one process, and so one JVM."""
    directory = tmp_path_factory.mktemp("parity")
    path = directory / "results.json"
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with (directory / "stdout").open("w") as out, (directory / "stderr").open("w") as err:
        done = subprocess.run(
            [sys.executable, "-m", "tests.parity.run_all", str(path)],
            cwd=directory,
            # Each record has a micro-batch of its own where a watermark must come behind it.
            env={**os.environ, "PYTHONPATH": python_path, "TZ": "UTC", "PARITY_PAUSE": "0"},
            stdout=out,
            stderr=err,
            check=False,
        )
    outcome: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    if done.returncode != 0:
        tail = (directory / "stderr").read_text()[-4000:]
        message = f"the run ended with status {done.returncode}:\n{tail}"
        for name in program_names():
            outcome.setdefault(name, {"output": "", "error": message})
    return outcome


def stray(directory: Path, names: list[str]) -> list[str]:
    """Recordings that no program has any more."""
    return sorted(path.stem for path in directory.glob("*.txt") if path.stem not in names)


def test_every_program_is_recorded() -> None:
    names = program_names()
    assert len(names) >= 16
    assert [name for name in names if not expected_path(name).exists()] == []
    assert stray(HERE / "expected", names) == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", program_names())
def test_same_lines_as_pyflink(name: str, results: dict[str, dict[str, Any]]) -> None:
    result = results[name]
    assert result["error"] is None, result["error"]
    expected = expected_path(name).read_text(encoding="utf-8").split("\n")
    assert normalise(result["output"]) == [line for line in expected if line]
