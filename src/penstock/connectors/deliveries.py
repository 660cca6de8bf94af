"""Output that waits in a checkpoint to be handed to the program, and what was handed over."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec

from penstock.connectors.durable import make_directory, sync_directory
from penstock.errors import LostStagedFileError
from penstock.ids import is_no_later

__all__ = ["Deliveries", "Delivery", "decode_delivery"]

_LARGEST_INLINE = 60 * 1024
_FILE = ".delivery"
_RECORD = ".delivered"


class Delivery(msgspec.Struct, frozen=True, array_like=True):
    """A committable: blocks of pickled values, all of them inline or in a file of this size."""

    id: str
    inline: list[bytes] | None
    size: int


decode_delivery = msgspec.msgpack.Decoder(Delivery).decode
_decode_blocks = msgspec.msgpack.Decoder(list[bytes]).decode


class Deliveries:
    """The deliveries of one step, in its durable directory, seen by one attempt."""

    def __init__(self, work_dir: Path, attempt: str) -> None:
        self._dir = work_dir
        self._attempt = attempt

    def prepare(self, blocks: Sequence[bytes]) -> bytes:
        """Make blocks durable, and give the committable that stands for them."""
        data = msgspec.msgpack.encode(list(blocks))
        name = f"{self._attempt}-{uuid4().hex}"
        if len(data) <= _LARGEST_INLINE:
            return msgspec.msgpack.encode(Delivery(name, list(blocks), len(data)))
        make_directory(self._dir)
        with self._path(name).open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self._dir)
        return msgspec.msgpack.encode(Delivery(name, None, len(data)))

    def load(self, delivery: Delivery) -> list[bytes]:
        """Give back the blocks."""
        if delivery.inline is not None:
            return delivery.inline
        path = self._path(delivery.id)
        data = path.read_bytes() if path.exists() else b""
        if len(data) != delivery.size:
            raise LostStagedFileError(str(path), delivery.size, len(data))
        return _decode_blocks(data)

    def recorded(self) -> set[str]:
        """Tell which deliveries were handed over, by this program or an earlier one."""
        return set().union(*map(_ids_in, self._dir.glob(f"*{_RECORD}")))

    def record(self, delivery: Delivery) -> None:
        """Write down that a delivery was handed over."""
        make_directory(self._dir)
        with (self._dir / f"{self._attempt}{_RECORD}").open("a") as file:
            # A power loss may have left half a line.
            file.write(f"\n{delivery.id}\n")
            file.flush()
            os.fsync(file.fileno())

    def forget(self, delivery: Delivery) -> None:
        """Remove the file of a delivery that was handed over."""
        self._path(delivery.id).unlink(missing_ok=True)

    def sweep(self, keep: Sequence[Delivery]) -> None:
        """Remove files and records of all deliveries but some; those of later attempts stay."""
        ids = {delivery.id for delivery in keep}
        for path in self._dir.glob(f"*{_FILE}"):
            if path.stem not in ids and self._may_remove(path.stem.partition("-")[0]):
                path.unlink(missing_ok=True)
        for path in self._dir.glob(f"*{_RECORD}"):
            if self._may_remove(path.stem):
                _keep_only(path, ids)

    def _may_remove(self, attempt: str) -> bool:
        return is_no_later(attempt, self._attempt)

    def _path(self, name: str) -> Path:
        return self._dir / f"{name}{_FILE}"


def _ids_in(record: Path) -> set[str]:
    # Whoever sweeps may have removed it just now.
    with suppress(FileNotFoundError):
        return set(record.read_text().split())
    return set()


def _keep_only(record: Path, ids: set[str]) -> None:
    still = sorted(_ids_in(record) & ids)
    if not still:
        record.unlink(missing_ok=True)
        return
    new = record.with_suffix(".new")
    new.write_text("\n".join(still))
    new.replace(record)
