"""Golden job directories, copied to the place where they were made."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.recovery import lease
from tests.golden.programs.running import HOME

GOLDEN = Path(__file__).parents[1] / "golden" / "jobs"

Unpack = Callable[[Path], Path]


def golden_jobs(*names: str) -> list[object]:
    """Return the golden directories of these names, of all generations; all, without any names."""
    found = sorted(path for path in GOLDEN.glob("*/*") if not names or path.name in names)
    missing = set(names) - {path.name for path in found}
    assert not missing, f"there is no golden directory for {sorted(missing)}"
    return [pytest.param(path, id=f"{path.parent.name}-{path.name}") for path in found]


@pytest.fixture
def unpack() -> Iterator[Unpack]:
    """Copy a golden directory to where it was made: its committables name absolute paths.

    One test at a time has it there, whatever else runs on this machine.
    """
    with ExitStack() as held:

        def copied(golden: Path) -> Path:
            place = HOME / golden.parent.name / golden.name
            place.parent.mkdir(parents=True, exist_ok=True)
            lock = held.enter_context(place.with_name(f".{place.name}.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(golden, place)
            held.callback(shutil.rmtree, place, ignore_errors=True)
            return place

        yield copied


@pytest.fixture(autouse=True, scope="module")
def no_waiting_for_the_disk() -> Iterator[None]:
    """Sync nothing: no power is lost here. Nor does the driver of a golden job live.

    Not for the whole session: other tests of the same process need both.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", os.fstat)
        patched.setattr(lease, "_OBSERVED_INTERVALS", 0.0)
        yield
