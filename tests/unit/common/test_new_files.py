"""Errors of a full disk name the file that was written."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.common.new_files import create_file, naming
from penstock.errors import MissingServerError
from penstock.storage.local_storage import LocalStorage
from tests.servers.small_disk import SmallDisk, small_disk


@pytest.fixture
def full() -> Iterator[Path]:
    try:
        with small_disk(1) as disk:
            SmallDisk(disk.path).fill()
            yield disk.path
    except MissingServerError as missing:
        pytest.skip(str(missing))


def test_a_new_file_on_a_full_disk_is_named_and_does_not_stay(full: Path) -> None:
    path = full / "new"
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"), create_file(path) as f:
        f.write(bytes(100_000))
    assert not path.exists()


def test_a_file_of_a_checkpoint_on_a_full_disk_is_named(full: Path) -> None:
    with pytest.raises(OSError, match=f"No space left on device: '{full}/journal/1'"):
        LocalStorage(full).create("journal/1", b"entry")


def test_the_name_survives_pickling() -> None:
    with pytest.raises(OSError, match="a/b") as raised, naming(Path("a/b")):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "a/b" in str(pickle.loads(pickle.dumps(raised.value)))


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(OSError, match=r"Input/output error$"), naming(Path("a/b")):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
