"""Output that waits in a checkpoint to be handed to the program, and what was handed over."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import msgspec

from penstock.connectors.durable import make_directory, sync_directory
from penstock.errors import LostStagedFileError

__all__ = ["Deliveries", "Delivery", "decode_delivery"]

_LARGEST_INLINE = 60 * 1024


class Delivery(msgspec.Struct, frozen=True, array_like=True):
    """A committable: blocks of pickled values, all of them inline or in a file of this size."""

    id: str
    inline: list[bytes] | None
    size: int


decode_delivery = msgspec.msgpack.Decoder(Delivery).decode
_decode_blocks = msgspec.msgpack.Decoder(list[bytes]).decode


class Deliveries:
    """The deliveries of one step, in its durable directory."""

    def __init__(self, work_dir: Path) -> None:
        self._dir = work_dir
        self._record = work_dir / "delivered"

    def prepare(self, blocks: Sequence[bytes]) -> bytes:
        """Make blocks durable, and give the committable that stands for them."""
        data = msgspec.msgpack.encode(list(blocks))
        name = uuid4().hex
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
        return set(self._record.read_text().split()) if self._record.exists() else set()

    def record(self, delivery: Delivery) -> None:
        """Write down that a delivery was handed over."""
        make_directory(self._dir)
        with self._record.open("a") as file:
            # A power loss may have left half a line.
            file.write(f"\n{delivery.id}\n")
            file.flush()
            os.fsync(file.fileno())

    def forget(self, delivery: Delivery) -> None:
        """Remove the file of a delivery that was handed over."""
        self._path(delivery.id).unlink(missing_ok=True)

    def sweep(self, keep: Sequence[Delivery]) -> None:
        """Remove all files but those of some deliveries, and the records of all others."""
        if not self._dir.exists():
            return
        ids = {delivery.id for delivery in keep}
        for path in self._dir.glob("*.delivery"):
            if path.stem not in ids:
                path.unlink(missing_ok=True)
        still = sorted(self.recorded() & ids)
        new = self._record.with_suffix(".new")
        new.write_text("\n".join(still))
        new.replace(self._record)
        if not still:
            self._record.unlink()

    def _path(self, name: str) -> Path:
        return self._dir / f"{name}.delivery"
