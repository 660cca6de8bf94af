"""Key groups: which subtask owns a key, and how the key is stored.

Only this module assigns keys to key groups and subtasks. The results are part of every checkpoint:
they may never change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt

LOWEST_DEFAULT = 128
HIGHEST_MAX_PARALLELISM = 1 << 15

LONG_KEY = 0xFF
"""Keys of this length or more have a longer length field."""

_LENGTHS = [bytes((length,)) for length in range(LONG_KEY)]
_GROUPS = [group.to_bytes(2, "big") for group in range(HIGHEST_MAX_PARALLELISM)]


class KeyGroupRange(msgspec.Struct, frozen=True):
    """The key groups from ``start`` up to, not including, ``stop``."""

    start: int
    stop: int

    def __contains__(self, key_group: object) -> bool:
        return isinstance(key_group, int) and self.start <= key_group < self.stop

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.stop))

    def __len__(self) -> int:
        return max(0, self.stop - self.start)


def default_max_parallelism(parallelism: int) -> int:
    """Return the default max parallelism, which Flink derives in the same way."""
    wanted = parallelism + parallelism // 2
    rounded = 1 << max(0, wanted - 1).bit_length()
    return min(max(rounded, LOWEST_DEFAULT), HIGHEST_MAX_PARALLELISM)


def key_group(key: bytes, max_parallelism: int) -> int:
    """Return the key group of an encoded key."""
    return int(key_groups_of((key,), max_parallelism)[0])


def key_groups_of(keys: Sequence[bytes], max_parallelism: int) -> npt.NDArray[np.int64]:
    """Return the key groups of many encoded keys."""
    return _scattered(np.fromiter(map(crc32, keys), np.uint32, len(keys))) % max_parallelism


def _scattered(sums: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Mix all bits with Murmur's finalizer: the checksums of 1, 2, 3, … differ in few bits."""
    sums ^= sums >> 16
    sums *= np.uint32(0x85EBCA6B)
    sums ^= sums >> 13
    sums *= np.uint32(0xC2B2AE35)
    sums ^= sums >> 16
    return sums.astype(np.int64)


def subtask_of(key_group: int, max_parallelism: int, parallelism: int) -> int:
    """Return the subtask that owns a key group."""
    return key_group * parallelism // max_parallelism


def key_group_range(max_parallelism: int, parallelism: int, index: int) -> KeyGroupRange:
    """Return the key groups that subtask ``index`` of ``parallelism`` owns."""
    start = -(-index * max_parallelism // parallelism)
    stop = -(-(index + 1) * max_parallelism // parallelism)
    return KeyGroupRange(start, stop)


def routed_key(key: bytes, key_group: int) -> bytes:
    """Return the routed key, the stored form of a key: key group, length, key.

    Flink's RocksDB backend also prefixes its keys with the key group.

    It contains its own length, so that a map state's user key can follow.
    """
    length = len(key)
    if length < LONG_KEY:
        return _GROUPS[key_group] + _LENGTHS[length] + key
    return b"%b\xff%b%b" % (_GROUPS[key_group], length.to_bytes(4, "big"), key)


def routed_keys(keys: Sequence[bytes], key_groups: Sequence[int]) -> list[bytes]:
    """Return the stored form of many keys."""
    if len(max(keys, key=len, default=b"")) < LONG_KEY:
        groups, lengths = _GROUPS, _LENGTHS
        pairs = zip(keys, key_groups, strict=True)
        return [groups[group] + lengths[len(key)] + key for key, group in pairs]
    return list(map(routed_key, keys, key_groups))


def key_of(routed: bytes) -> bytes:
    """Return the encoded key in a routed key, whatever follows it."""
    start, stop = _bounds(routed)
    return routed[start:stop]


def end_of_key(routed: bytes) -> int:
    """Return where a routed key ends, whatever follows it."""
    return _bounds(routed)[1]


def _bounds(routed: bytes) -> tuple[int, int]:
    length = routed[2]
    if length < LONG_KEY:
        return 3, 3 + length
    return 7, 7 + int.from_bytes(routed[3:7], "big")
