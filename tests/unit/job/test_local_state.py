"""Where a job keeps its state on a host, and what happens if there is no space."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import lmdb
import pytest

from penstock.common import Types
from penstock.datastream import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.state import local_dir
from penstock.state.backends.lmdb import environment as lmdb_environment
from penstock.state.backends.rocksdb.database import RocksDbDatabase
from penstock.task.messages import Instruction
from tests.unit.support import WatchedSubmitter, collected, environment


class Count(KeyedProcessFunction[Any, int, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Any:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield value % 2, count


class Directories(WatchedSubmitter):
    """Looks at the directories that tasks use, while they exist."""

    def __init__(self) -> None:
        super().__init__()
        self.used: dict[str, int] = {}
        """By path, the mode."""

    def after(self, instruction: Instruction) -> None:
        for acks in self.acknowledgements:
            for ack in acks:
                if instruction.stage and ack.location and ack.subtask == 0:
                    path = Path(ack.location.directory)
                    if path.exists():
                        self.used.setdefault(str(path), stat.S_IMODE(path.stat().st_mode))


def run(backend: str, **settings: str) -> tuple[list[Any], Directories]:
    directories = Directories()
    env = directories.watch(
        environment(
            1,
            state__backend__type=backend,
            penstock__micro_batch__max_records="10",
            penstock__micro_batch__initial_records="10",
            **settings,
        )
    )
    counted = env.from_collection(list(range(60)), Types.LONG()).key_by(lambda n: n % 2)
    return collected(counted.process(Count())), directories


COUNTS = sorted((n % 2, n // 2 + 1) for n in range(60))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with much shared memory and a disk."""
    monkeypatch.delenv(local_dir.LOCAL_DIR_VARIABLE, raising=False)
    for name in ("memory", "disk", "configured"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(local_dir, "SHARED_MEMORY", tmp_path / "memory")
    monkeypatch.setattr(local_dir, "ENOUGH", 1)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "disk"))
    return tmp_path


@pytest.mark.parametrize(("backend", "location"), [("hashmap", "memory"), ("rocksdb", "disk")])
def test_only_hashmap_uses_shared_memory_by_default(
    host: Path, backend: str, location: str
) -> None:
    counts, directories = run(backend)
    assert sorted(counts) == COUNTS
    assert {Path(used).parent for used in directories.used} == {host / location}


def test_each_driver_has_a_directory_of_its_own_that_no_other_user_can_open(host: Path) -> None:
    old = os.umask(0)
    try:
        used = [run("hashmap", execution__checkpointing__dir=str(host / "c")) for _ in range(2)]
    finally:
        os.umask(old)
    paths = [path for _, directories in used for path in directories.used]
    assert len(set(paths)) == 2
    assert {mode for _, directories in used for mode in directories.used.values()} == {0o700}
    assert not any(Path(path).exists() for path in paths)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_job_whose_local_directory_becomes_full_continues_in_another_one(
    host: Path, backend: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened: list[Path] = []
    open_lmdb, apply = lmdb_environment._open, RocksDbDatabase.apply

    def check(path: Path) -> bool:
        opened.append(path)
        return len(opened) > 2 and path.is_relative_to(host / "configured")

    def open_if_space(path: Path, map_size: int) -> Any:
        if check(path):
            message = f"{path}: {os.strerror(errno.ENOSPC)}"
            raise lmdb.DiskError(message)
        return open_lmdb(path, map_size)

    def apply_if_space(database: RocksDbDatabase, changes: Any) -> None:
        if check(database._path):
            message = f"IO error: {os.strerror(errno.ENOSPC)}: While appending to file: 000017.sst"
            raise Exception(message)
        apply(database, changes)

    monkeypatch.setattr(lmdb_environment, "_open", open_if_space)
    monkeypatch.setattr(RocksDbDatabase, "apply", apply_if_space)
    counts, directories = run(
        backend,
        penstock__state__local_dir=str(host / "configured"),
        execution__checkpointing__dir=str(host / "c"),
        penstock__checkpoint__records="20",
    )
    assert sorted(counts) == COUNTS
    assert {Path(used).parent for used in directories.used} == {host / "configured", host / "disk"}
    assert f"local state cannot be written to {host}/configured/penstock-" in caplog.text
    assert f"keeps local state in {host}/disk/penstock-" in caplog.text
    assert caplog.text.count("keeps local state in") == 1
    assert "restarts" not in caplog.text
    for location in ("configured", "disk", "memory"):
        assert not list((host / location).iterdir())
