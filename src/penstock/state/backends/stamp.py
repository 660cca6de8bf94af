"""What a local store says of itself: which version it holds, out of which files."""

from __future__ import annotations

import msgspec

from penstock.state.backends.refs import StateRef

__all__ = ["Stamp", "decode_stamp"]


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """Which version a local store holds, and the last delta that went into it.

    A store that cannot take a delta in one step first says which one it is about to take: with
    ``rising`` it holds parts of that delta too, and is of use only once it holds all of it.
    """

    version: int
    file: str = ""
    rising: tuple[int, str] | None = None

    def encode(self) -> bytes:
        """Return the stamp as a store keeps it."""
        return _pack(self)

    def is_at(self, ref: StateRef) -> bool:
        """Tell whether the store holds exactly the version of a ref."""
        return self.rising is None and self.version == ref.version and self._is_history_of(ref)

    def is_ahead_of(self, ref: StateRef) -> bool:
        """Tell whether the store has gone on behind a ref."""
        return max(self.version, self.rising[0] if self.rising else 0) > ref.version

    def reaches(self, ref: StateRef) -> bool:
        """Tell whether the deltas of a ref lead from here to it."""
        if self.is_ahead_of(ref) or not self._is_history_of(ref):
            return False
        if self.rising and self.rising[1] not in {delta.name for delta in ref.deltas}:
            return False
        return ref.base_version is None or self.version >= ref.base_version

    def _is_history_of(self, ref: StateRef) -> bool:
        # Versions alone would do if local directories are never shared; the name proves it.
        passed = [delta for delta in ref.deltas if delta.version <= self.version]
        return not passed or passed[-1].name == self.file


_pack = msgspec.msgpack.Encoder().encode
decode_stamp = msgspec.msgpack.Decoder(Stamp).decode
