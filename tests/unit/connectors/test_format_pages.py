"""The program on the page about files runs as it stands there."""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

PAGE = Path(__file__).parents[3] / "docs" / "connectors" / "files.md"


def test_the_program_on_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text("word,count\na,1\nb,2\n")
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(program, str(PAGE), "exec"), {})
    assert pq.read_table("out").to_pylist() == [{"word": "b", "count": 2}]
