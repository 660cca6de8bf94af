"""The version marker of a local store."""

from __future__ import annotations

import msgspec

from penstock.state.backends.refs import StateRef


class VersionMarker(msgspec.Struct, frozen=True, array_like=True):
    """Which version a local store holds, and the last delta that was applied to it.

    A store that cannot apply a delta atomically first records the delta it is about to apply: with
    ``applying`` it may hold parts of that delta, and is usable only once it holds all of it.
    """

    version: int
    file: str = ""
    applying: tuple[int, str] | None = None

    def encode(self) -> bytes:
        """Return the bytes of the marker."""
        return _pack(self)

    def is_at(self, ref: StateRef) -> bool:
        """Tell whether the store holds exactly the version of a ref."""
        return self.applying is None and self.version == ref.version and self._is_history_of(ref)

    def is_ahead_of(self, ref: StateRef) -> bool:
        """Tell whether the store is at a later version than a ref."""
        return max(self.version, self.applying[0] if self.applying else 0) > ref.version

    def reaches(self, ref: StateRef) -> bool:
        """Tell whether the deltas of a ref bring the store to its version."""
        if self.is_ahead_of(ref) or not self._is_history_of(ref):
            return False
        if self.applying and self.applying[1] not in {delta.name for delta in ref.deltas}:
            return False
        return ref.base_version is None or self.version >= ref.base_version

    def _is_history_of(self, ref: StateRef) -> bool:
        # Versions would be enough if local directories were never shared; the name makes sure.
        passed = [delta for delta in ref.deltas if delta.version <= self.version]
        return not passed or passed[-1].name == self.file


_pack = msgspec.msgpack.Encoder().encode
decode_version_marker = msgspec.msgpack.Decoder(VersionMarker).decode
