"""NEXMark runs on penstock and on Spark's own operators, at a size that says nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from benchmarks.nexmark import on_penstock, on_spark
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.plan import HASHMAP, SPARK, Run
from benchmarks.nexmark.tables import sheet
from benchmarks.report import markdown_sheet

from penstock.common.pyflink.import_alias import PyFlinkImportAlias

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _names_end_with_the_test() -> Iterator[None]:
    yield
    sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, PyFlinkImportAlias)]
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyflink"]:
        del sys.modules[name]


def test_all_engines_give_the_same_answers_and_are_timed(tmp_path: Path) -> None:
    events = Events(1_000, 250, 50, str(tmp_path))
    events.generate()
    given: dict[str, Any] = {"check": asdict(events), "events": asdict(events), "parallelism": 2}
    ours = on_penstock.run("q7", **given, backend="hashmap")
    theirs = on_spark.run("q7", **given)
    for timed in (ours, theirs):
        assert timed["all_events"] == events.count
        assert 0 < timed["events"] < events.count
        assert timed["seconds"] > 0
    runs = [Run("q7", HASHMAP.name, 1, ours), Run("q7", SPARK.name, 1, theirs)]
    assert "| q7 | " in markdown_sheet(sheet(runs))
