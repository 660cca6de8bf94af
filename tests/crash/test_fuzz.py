"""Single bits of what a killed job left are flipped: a few here, more by `make fuzz`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.fuzz import fuzz


@pytest.mark.crash
def test_a_flipped_bit_is_detected_or_harmless(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    defects = fuzz(tmp_path, seed=2, seconds=240.0, most=16, backend="hashmap")
    assert not defects, capsys.readouterr().out
