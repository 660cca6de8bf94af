"""The PyFlink program of the queries, run by penstock as it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.nexmark.contract import verified
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.on_penstock import environment, rows_of
from benchmarks.nexmark.reference import ANSWERS

from penstock.common.pyflink.import_alias import PyFlinkImportAlias
from penstock.testing import run_inline


@pytest.fixture(scope="module", autouse=True)
def _names_end_with_the_module() -> Iterator[None]:
    yield
    sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, PyFlinkImportAlias)]
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyflink"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Events:
    """Half a minute of event time, in several micro-batches."""
    made = Events(3_000, 400, 100, str(tmp_path_factory.mktemp("nexmark")))
    made.generate()
    return made


@pytest.mark.parametrize("query", ANSWERS)
def test_penstock_gives_the_same_answer_as_the_reference(
    query: str, events: Events, tmp_path: Path
) -> None:
    env = run_inline(environment(events, parallelism=2, backend="hashmap"))
    verified(query, rows_of(query, events, env), events)
