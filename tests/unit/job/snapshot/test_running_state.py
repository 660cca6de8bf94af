"""A driver that cannot answer a query about its state keeps nothing of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import StateElsewhereError
from penstock.job.snapshot.running_state import RunningStateReader
from penstock.snapshots.queries.query import StateQuery
from penstock.state.backends.host_files import HostFiles
from penstock.state.backends.refs import FileRef, StateLocation
from penstock.testing import ManualClock


def test_a_query_that_fails_leaves_no_files(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "base").write_bytes(b"")

    class Elsewhere:
        """A subtask whose base is there, and whose changes are on another host."""

        subtask, key_groups = 0, range(128)

        def open(self, files: HostFiles) -> Any:
            files.get(StateLocation(shared, shared), FileRef("base", 1, 0, 0))
            raise StateElsewhereError(str(shared / "delta"))

    published = SimpleNamespace(batch=1, published=0.0, parts=[Elsewhere()], release=lambda: None)
    state: Any = SimpleNamespace(
        uid="u", name="u", key_type="LONG", max_parallelism=128, published=lambda: published
    )
    clock = ManualClock()
    reader = RunningStateReader(tmp_path / "reads", clock, clock)
    for _ in range(3):
        with pytest.raises(StateElsewhereError):
            reader.read([state], StateQuery("u", "count", ["1"]))
    assert not [path for path in (tmp_path / "reads").rglob("*") if path.is_file()]
    assert all(not list(path.iterdir()) for path in (tmp_path / "reads").iterdir())
