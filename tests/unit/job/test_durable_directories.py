"""The names of new directories survive a power loss: the directory above each one is synced."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock.connectors.socket.ingestion_log import IngestionLog
from tests.local_paths import local
from tests.unit.job.counting import (
    Program,
    checkpoint,
    die,
    idle_after,
    launched,
    wait_for_records,
)


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """The files and directories that were synced."""
    fsync, paths = os.fsync, set[Path]()

    def recorded(descriptor: int) -> None:
        fsync(descriptor)
        paths.add(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", recorded)
    return paths


def not_synced(root: Path, files: Iterable[Path], synced: set[Path]) -> set[Path]:
    """Directories below `root`, or itself, that lead to a file and were not synced."""
    needed = {above for file in files for above in file.parents if above.is_relative_to(root)}
    return needed - synced


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_every_directory_that_leads_to_a_checkpoint_or_savepoint_is_synced(
    tmp_path: Path, synced: set[Path], backend: str
) -> None:
    settings = {"state__backend__type": backend}
    program = Program(tmp_path, idle_after(50), settings=settings, interval="1 h")
    job = program.launch()
    wait_for_records(job, 50)
    job.savepoint(str(tmp_path / "new" / "savepoints")).result(20)
    number = checkpoint(job)
    die(job)
    state = [path for path in local(program.dir.shared).rglob("*") if path.is_file()]
    saved = list((tmp_path / "new").rglob("*.parquet"))
    assert state
    assert saved
    journal = list(local(program.dir.journal).iterdir())
    files = [local(program.dir.metadata(number)), *state, *saved, *journal]
    assert not_synced(tmp_path, files, synced) == set()


def test_every_directory_that_leads_to_an_ingestion_log_is_synced(
    tmp_path: Path, synced: set[Path]
) -> None:
    log = IngestionLog(tmp_path / "connectors" / "a1" / "socket")
    log.append([b"line"])
    log.close()
    files = list(log.directory.glob("*.segment"))
    assert files
    assert not_synced(tmp_path, files, synced) == set()
