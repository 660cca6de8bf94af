"""The program on the page about files runs as it stands there."""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.datastream.connectors.file_system import FileSink, FileSource

PAGE = Path(__file__).parents[3] / "docs" / "connectors" / "files.md"


def programs() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_program_on_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text("word,count\na,1\nb,2\n")
    exec(compile(programs()[0], str(PAGE), "exec"), {})
    assert pq.read_table("out").to_pylist() == [{"word": "b", "count": 2}]


def test_the_source_and_the_sink_in_a_store_are_built_without_the_store() -> None:
    names: dict[str, object] = {}
    (in_a_store,) = programs()[1:]
    exec(compile(in_a_store, str(PAGE), "exec"), names)
    assert {"s3://bucket/in", "s3://bucket/out"} <= set(re.findall(r"s3://[a-z/]+", in_a_store))
    assert isinstance(names["source"], FileSource)
    assert isinstance(names["sink"], FileSink)
