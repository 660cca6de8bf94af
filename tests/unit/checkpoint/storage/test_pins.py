"""Pins: what a reader reads is deleted when it is done, and either side sees the other."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.pins import Pins, pin_checkpoint, pinned
from penstock.errors import DisappearedSnapshotError
from penstock.ids import CheckpointId
from penstock.testing import ManualClock
from tests.local_paths import local
from tests.unit.checkpoint.coordinator.coordinated_job import World
from tests.unit.checkpoint.storage.test_completed_checkpoint_store import done


def on_disk(job: JobDir) -> list[int]:
    return [int(c) for c in job.checkpoints_on_disk()]


def pin_files(job: JobDir) -> list[str]:
    return job.storage.children("pins")


def test_a_pinned_checkpoint_is_discarded_and_stays_on_disk(tmp_path: Path) -> None:
    world = World(tmp_path)
    done(world, 1)
    with pinned(world.dir, 1, world.clock) as pin:
        pin.renew()
        done(world, 2)
        assert world.store.discard_subsumed() == []
        assert world.journal.state().find(1) is None
        assert on_disk(world.dir) == [1, 2]
    done(world, 3)
    assert world.store.discard_subsumed() == [1, 2]
    assert on_disk(world.dir) == [3]
    assert pin_files(world.dir) == []


def test_a_pin_that_is_not_renewed_expires(tmp_path: Path) -> None:
    world = World(tmp_path)
    done(world, 1)
    pin = pin_checkpoint(world.dir, 1, 60, world.clock)
    done(world, 2)
    assert world.store.discard_subsumed() == []
    world.clock.advance(40)
    pin.renew(60)
    world.clock.advance(40)
    done(world, 3)
    assert world.store.discard_subsumed() == [2]
    world.clock.advance(21)
    done(world, 4)
    assert world.store.discard_subsumed() == [1, 3]
    assert pin_files(world.dir) == []


def test_a_discarded_checkpoint_cannot_be_pinned(tmp_path: Path) -> None:
    world = World(tmp_path)
    done(world, 1)
    with pinned(world.dir, 1, world.clock):
        done(world, 2)
        world.store.discard_subsumed()
        with pytest.raises(DisappearedSnapshotError, match="chk-1"):
            pin_checkpoint(world.dir, 1)
    with pytest.raises(DisappearedSnapshotError, match="chk-7"):
        pin_checkpoint(world.dir, 7)
    assert pin_files(world.dir) == []


def test_what_is_no_pin_holds_nothing(tmp_path: Path) -> None:
    clock = ManualClock(1000.0)
    job = World(tmp_path).dir
    job.storage.replace("pins/hello", b"")
    for n, content in enumerate([b"", b"{}", b'{"expires": 1e300}', b'{"expires": 999}']):
        job.storage.replace(f"pins/{n + 1}-{'0' * 32}.json", content)
    job.storage.replace(f"pins/9-{'0' * 32}.json", b'{"expires": 1001}')
    assert Pins(job, clock).checkpoints() == {CheckpointId(9)}
    assert sorted(pin_files(job)) == [f"9-{'0' * 32}.json", "hello"]


def test_pins_that_cannot_be_read_keep_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    done(world, 1)
    done(world, 2)
    with monkeypatch.context() as patched:
        storage = type(world.dir.storage)
        patched.setattr(storage, "children", lambda *_: (_ for _ in ()).throw(OSError("gone")))
        assert world.store.discard_subsumed() == []
    done(world, 3)
    assert world.store.discard_subsumed() == [1, 2]


def test_the_next_attempt_keeps_what_is_pinned_and_deletes_it_later(tmp_path: Path) -> None:
    world = World(tmp_path)
    done(world, 1)
    with pinned(world.dir, 1, world.clock):
        done(world, 2)
        world.store.discard_subsumed()
        successor = World(tmp_path, attempt="a2")
        done(successor, 3)
        assert successor.store.discard_subsumed() == [2]
        assert on_disk(world.dir) == [1, 3]
    done(successor, 4)
    assert successor.store.discard_subsumed() == [1, 3]


@pytest.mark.parametrize("seed", range(3))
def test_a_reader_that_got_its_pin_finds_its_checkpoint(tmp_path: Path, seed: int) -> None:
    """Readers pin the newest checkpoint all the time while a driver completes one after another."""
    world = World(tmp_path)
    done(world, 1)
    stop, problems, read = threading.Event(), list[str](), itertools.count()

    def reader() -> None:
        while not stop.is_set():
            newest = world.dir.checkpoints_on_disk()
            for checkpoint in newest:
                try:
                    with pinned(world.dir, checkpoint, world.clock):
                        for _ in range(3):
                            time.sleep(0.001 * seed)
                            if not local(world.dir.metadata(checkpoint)).exists():
                                problems.append(f"{checkpoint} was deleted")
                        next(read)
                except DisappearedSnapshotError:
                    continue

    threads = [threading.Thread(target=reader) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(2, 60):
        done(world, n)
        world.store.discard_subsumed()
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert next(read) > 0
    done(world, 60)
    world.store.discard_subsumed()
    assert on_disk(world.dir) == [60]


def test_a_pin_is_read_again_only_when_it_would_have_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    done(world, 1)
    pin = pin_checkpoint(world.dir, 1, 60, world.clock)
    read: list[str] = []
    storage = type(world.dir.storage)
    whole = storage.read

    def watched(self: Any, path: str) -> bytes:
        read.append(path)
        return whole(self, path)

    monkeypatch.setattr(storage, "read", watched)
    pins = Pins(world.dir, world.clock)
    for _ in range(5):
        assert pins.checkpoints() == {1}
        world.clock.advance(10)
        pin.renew(60)
    assert len(read) == 1
    world.clock.advance(20)
    assert pins.checkpoints() == {1}
    assert len(read) == 2
    pin.release()
    assert pins.checkpoints() == frozenset()
