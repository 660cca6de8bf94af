"""Which deliveries of a broker a job has seen, kept small enough for a checkpoint.

Numbers are kept as runs and never forgotten: a broker that counts its messages can be believed
about nothing else. Names are kept as digests, and only as long as the broker may deliver them
again.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import chain, pairwise
from math import inf
from typing import TypeAlias

import msgspec

__all__ = ["DeliveryId", "NumberRuns", "SeenIds"]

DeliveryId: TypeAlias = int | str
"""What a broker calls a message each time it delivers it."""

_DIGEST_BYTES = 16
_RECENT_NAMES = 100_000
"""How many acknowledged names are still known: one may be on its way a second time."""


class NumberRuns:
    """A set of whole numbers in which neighbours cost nothing.

    Numbers that come in rising order cost a step each; all up to ``floor`` are in the set.
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
        """Take up a number; one that is in already changes nothing."""
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
        """Take up every number up to this one, also those that never come."""
        if floor <= self.floor:
            return
        gone = bisect_right(self._starts, floor + 1)
        if gone:
            floor = max(floor, self._ends[gone - 1] - 1)
            del self._starts[:gone], self._ends[:gone]
        self.floor = floor

    def missing_up_to(self, number: int) -> list[tuple[int, int]]:
        """Return the runs of numbers that are not in the set, up to this one, ends exclusive."""
        borders = [self.floor + 1, *chain.from_iterable(self.runs()), number + 1]
        gaps = zip(borders[::2], borders[1::2], strict=True)
        return [(s, min(e, number + 1)) for s, e in gaps if s < min(e, number + 1)]

    def runs(self) -> list[tuple[int, int]]:
        """Return the runs above the floor, ends exclusive."""
        return list(zip(self._starts, self._ends, strict=True))

    def distances(self) -> list[int]:
        """Return the runs as steps from each border to the next, which are small numbers."""
        borders = [self.floor, *chain.from_iterable(self.runs())]
        return [after - before for before, after in pairwise(borders)]

    @classmethod
    def at_distances(cls, floor: int, distances: Iterable[int]) -> NumberRuns:
        """Return the set that had this floor and these distances."""
        made = cls(floor)
        border = floor
        for index, distance in enumerate(distances):
            border += distance
            (made._ends if index % 2 else made._starts).append(border)
        return made


class _Written(msgspec.Struct, array_like=True):
    floor: int
    distances: list[int]
    names: bytes
    until: list[float | None]


class SeenIds:
    """The ids whose records lie before a cut, or were seen by an earlier attempt.

    Not safe for several threads. ``horizon`` is how many seconds after a restore a broker may
    come again with a name whose acknowledgement nobody is sure of.
    """

    def __init__(self, clock: Callable[[], float], horizon: float) -> None:
        self._clock = clock
        self._horizon = horizon
        self._numbers = NumberRuns()
        self._names: dict[bytes, float] = {}
        """By digest: until when it must be known."""
        self._recent: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, id_: DeliveryId) -> bool:
        if isinstance(id_, int):
            return id_ in self._numbers
        digest = _digest(id_)
        return digest in self._names or digest in self._recent

    def add(self, ids: Iterable[DeliveryId]) -> None:
        """Take up the ids of records that are now behind."""
        for id_ in ids:
            if isinstance(id_, int):
                self._numbers.add(id_)
            else:
                self._names[_digest(id_)] = inf

    def acknowledged(self, ids: Iterable[DeliveryId]) -> None:
        """Learn that the broker has the acknowledgements of these, for good."""
        for id_ in ids:
            if isinstance(id_, str):
                digest = _digest(id_)
                self._names.pop(digest, None)
                self._recent[digest] = None
        while len(self._recent) > _RECENT_NAMES:
            self._recent.popitem(last=False)

    def acknowledged_up_to(self, floor: int) -> None:
        """Learn that the broker waits for no number up to this one."""
        self._numbers.fill_up_to(floor)

    def missing_up_to(self, number: int) -> list[tuple[int, int]]:
        """Return the runs of numbers up to this one that are not known, ends exclusive."""
        return self._numbers.missing_up_to(number)

    def encode(self) -> bytes:
        """Return what :meth:`decode` needs."""
        now = self._clock()
        names = {digest: until for digest, until in self._names.items() if until > now}
        written = _Written(
            self._numbers.floor,
            self._numbers.distances(),
            b"".join(names),
            [None if until == inf else until for until in names.values()],
        )
        return zlib.compress(msgspec.msgpack.encode(written), 1)

    def decode(self, data: bytes) -> None:
        """Take up what another attempt's :meth:`encode` gave, in a set that is still empty."""
        written = msgspec.msgpack.decode(zlib.decompress(data), type=_Written)
        self._numbers = NumberRuns.at_distances(written.floor, written.distances)
        until = self._clock() + self._horizon
        for index, known_until in enumerate(written.until):
            digest = written.names[index * _DIGEST_BYTES : (index + 1) * _DIGEST_BYTES]
            self._names[digest] = until if known_until is None else known_until


def _digest(name: str) -> bytes:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()
