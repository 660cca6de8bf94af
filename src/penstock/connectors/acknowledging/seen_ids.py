"""The ids of all deliveries that a job has seen, compact enough for a checkpoint.

Numbers are stored as ranges and never forgotten. Names are stored as digests, and only as long as
the broker may redeliver them.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import accumulate, chain, pairwise
from math import inf
from typing import TypeAlias

import msgspec

DeliveryId: TypeAlias = int | str
"""The id of a message, the same in every delivery."""

_DIGEST_BYTES = 16
_RECENT_NAMES = 100_000
"""How many acknowledged names are kept: a redelivery may be in flight."""


class IdRanges:
    """A set of integers, stored as ranges; all numbers up to ``floor`` are in it.

    Adding numbers in ascending order takes constant time each.
    """

    def __init__(self, floor: int = -1) -> None:
        self.floor = floor
        self._starts: list[int] = []
        self._ends: list[int] = []  # exclusive

    def __contains__(self, number: int) -> bool:
        if number <= self.floor:
            return True
        index = bisect_right(self._starts, number) - 1
        return index >= 0 and number < self._ends[index]

    def add(self, number: int) -> None:
        """Add a number."""
        starts, ends = self._starts, self._ends
        if ends and number == ends[-1]:
            ends[-1] = number + 1
            return
        if number in self:
            return
        index = bisect_right(starts, number)
        joins_left = index > 0 and ends[index - 1] == number
        joins_right = index < len(starts) and starts[index] == number + 1
        if joins_left and joins_right:
            ends[index - 1] = ends[index]
            del starts[index], ends[index]
        elif joins_left:
            ends[index - 1] = number + 1
        elif joins_right:
            starts[index] = number
        else:
            starts.insert(index, number)
            ends.insert(index, number + 1)

    def fill_up_to(self, floor: int) -> None:
        """Add all numbers up to this one, also unused ones."""
        if floor <= self.floor:
            return
        covered = bisect_right(self._starts, floor + 1)
        if covered:
            floor = max(floor, self._ends[covered - 1] - 1)
            del self._starts[:covered], self._ends[:covered]
        self.floor = floor

    def missing_up_to(self, number: int) -> list[tuple[int, int]]:
        """Return the ranges of numbers up to this one that are not in the set, ends exclusive."""
        borders = [self.floor + 1, *chain.from_iterable(self.ranges()), number + 1]
        gaps = zip(borders[::2], borders[1::2], strict=True)
        return [(s, min(e, number + 1)) for s, e in gaps if s < min(e, number + 1)]

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges above the floor, ends exclusive."""
        return list(zip(self._starts, self._ends, strict=True))

    def distances(self) -> list[int]:
        """Return the differences between range borders, which are small numbers."""
        borders = [self.floor, *chain.from_iterable(self.ranges())]
        return [after - before for before, after in pairwise(borders)]

    @classmethod
    def at_distances(cls, floor: int, distances: Iterable[int]) -> IdRanges:
        """Return the set with this floor and these :meth:`distances`."""
        made = cls(floor)
        _, *borders = accumulate(distances, initial=floor)
        made._starts, made._ends = borders[::2], borders[1::2]
        return made


class _Encoded(msgspec.Struct, array_like=True):
    floor: int
    distances: list[int]
    names: bytes
    until: list[float | None]


class SeenIds:
    """The ids of all planned records, including those of earlier attempts.

    Not thread-safe. ``horizon`` is for how many seconds after a restore the broker may redeliver a
    name whose acknowledgement was not confirmed.
    """

    def __init__(self, clock: Callable[[], float], horizon: float) -> None:
        self._clock = clock
        self._horizon = horizon
        self.numbers = IdRanges()
        self._names: dict[bytes, float] = {}
        """By digest: the time until which it is kept."""
        self._recent: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, id_: DeliveryId) -> bool:
        if isinstance(id_, int):
            return id_ in self.numbers
        digest = _digest(id_)
        return digest in self._names or digest in self._recent

    def add(self, ids: Iterable[DeliveryId]) -> None:
        """Add the ids of records that are planned."""
        for id_ in ids:
            if isinstance(id_, int):
                self.numbers.add(id_)
            else:
                self._names[_digest(id_)] = inf

    def acknowledged(self, ids: Iterable[DeliveryId]) -> None:
        """Record that the broker has confirmed the acknowledgements of these."""
        for id_ in ids:
            if isinstance(id_, str):
                digest = _digest(id_)
                self._names.pop(digest, None)
                self._recent[digest] = None
        while len(self._recent) > _RECENT_NAMES:
            self._recent.popitem(last=False)

    def encode(self) -> bytes:
        """Return the set as bytes."""
        now = self._clock()
        names = {digest: until for digest, until in self._names.items() if until > now}
        encoded = _Encoded(
            self.numbers.floor,
            self.numbers.distances(),
            b"".join(names),
            [None if until == inf else until for until in names.values()],
        )
        return zlib.compress(msgspec.msgpack.encode(encoded), 1)

    def decode(self, data: bytes) -> None:
        """Load what :meth:`encode` of an earlier attempt returned into this empty set."""
        encoded = msgspec.msgpack.decode(zlib.decompress(data), type=_Encoded)
        self.numbers = IdRanges.at_distances(encoded.floor, encoded.distances)
        until = self._clock() + self._horizon
        for index, known_until in enumerate(encoded.until):
            digest = encoded.names[index * _DIGEST_BYTES : (index + 1) * _DIGEST_BYTES]
            self._names[digest] = until if known_until is None else known_until


def _digest(name: str) -> bytes:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()
