"""Measures keyed state: entries and bytes by state and key group, with one read of each file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.state_parts import OpenPart


@dataclass(frozen=True, slots=True)
class KeyGroupSize:
    """The entries of a state in one key group, and the bytes of their keys and values."""

    entries: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StateSize:
    """One state in one part, by key group; those without entries are left out."""

    state: KeyedState
    key_groups: dict[int, KeyGroupSize]

    @property
    def entries(self) -> int:
        """How many entries it has."""
        return sum(size.entries for size in self.key_groups.values())

    @property
    def bytes(self) -> int:
        """The bytes of all keys and values, as a store has them."""
        return sum(size.bytes for size in self.key_groups.values())


def measure(part: OpenPart, states: Sequence[KeyedState]) -> list[StateSize]:
    """Return the sizes of states in a part."""
    return [StateSize(state, _by_key_group(part, state)) for state in states]


def _by_key_group(part: OpenPart, state: KeyedState) -> dict[int, KeyGroupSize]:
    found: dict[int, KeyGroupSize] = {}
    group, entries, size = b"", 0, 0
    for key, value in part.entries(state, b"", None):
        # The key group is behind the number of the table.
        if key[2:4] != group:
            if entries:
                found[int.from_bytes(group, "big")] = KeyGroupSize(entries, size)
            group, entries, size = key[2:4], 0, 0
        entries += 1
        size += len(key) + len(value)
    if entries:
        found[int.from_bytes(group, "big")] = KeyGroupSize(entries, size)
    return found
