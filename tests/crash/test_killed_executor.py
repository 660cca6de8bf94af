"""An executor killed with -9 in the middle of a micro-batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.crash, pytest.mark.spark]

ROOT = Path(__file__).parents[2]


def test_a_killed_executor_keeps_the_output_exact(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.crash.executor_program", str(tmp_path / "killed")]
    run = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stderr[-3000:]
    assert "killed True, 3000 lines, one execution each" in run.stdout
