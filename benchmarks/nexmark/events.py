"""NEXMark's events from a seed, written once as text files, the same for every engine.

An online auction: of fifty events one is a new person, three are new auctions and 46 are bids. Half
of the bids go to a hot auction, three quarters come from a hot bidder, and three quarters of the
auctions are opened by a hot seller; the rest is drawn from what came in lately. Event time advances
evenly; each event may be late by up to `DELAY_MS`, and none by more.

A line is one event: its kind, its time in milliseconds, its columns, with commas that occur nowhere
else. All engines get lines and take them apart themselves. The same lines are in parts, which make
up micro-batches, and in one file for an engine that would read parts in any order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from benchmarks.workload import FIRST_MODIFIED

PERSON, AUCTION, BID = "P", "A", "B"
EVENTS_PER_ROUND = 50
AUCTIONS_PER_ROUND = 3
FIRST_ID = 1000
FIRST_TIME = 1_436_918_400_000
DELAY_MS = 1_000
CATEGORIES = tuple(range(10, 15))
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")

_CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Kent", "Cody")
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Ada")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Ito")
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_CHANNELS = 10_000
_HOT = 100
"""One of so many ids is hot while the next ones come in."""
_ACTIVE_PEOPLE = 1_000
_OPEN_AUCTIONS = 100
_LEAD = 10
"""So many ids may be named before their person or auction has come."""


@dataclass(frozen=True)
class Events:
    """So many events, cut into files that make up micro-batches."""

    count: int
    events_per_file: int
    rate: int
    """Events per second of event time."""
    cache: str
    seed: int = 7
    delay_ms: int = DELAY_MS

    @property
    def files(self) -> int:
        return -(-self.count // self.events_per_file)

    @property
    def directory(self) -> Path:
        size = f"{self.count}-f{self.events_per_file}"
        return Path(self.cache) / f"nexmark-{size}-r{self.rate}-d{self.delay_ms}-s{self.seed}"

    def paths(self) -> list[Path]:
        """The parts in the order of their events."""
        return [self.parts / f"part-{index:05d}.txt" for index in range(self.files)]

    @property
    def parts(self) -> Path:
        return self.directory / "parts"

    @property
    def whole(self) -> Path:
        """One file with the lines of all parts."""
        return self.directory / "events.txt"

    def generate(self) -> None:
        """Write the files that are not there yet."""
        self.parts.mkdir(parents=True, exist_ok=True)
        for index, path in enumerate(self.paths()):
            if not path.exists():
                # Spark's file source takes files by age: let that be the order of their events.
                with _written_at_once(path, FIRST_MODIFIED + index) as file:
                    file.writelines(f"{line}\n".encode() for line in self._part(index))
        if not self.whole.exists():
            with _written_at_once(self.whole, FIRST_MODIFIED) as file:
                for path in self.paths():
                    file.write(path.read_bytes())

    def lines(self) -> Iterator[str]:
        """All events, without writing them."""
        for index in range(self.files):
            yield from self._part(index)

    def _part(self, index: int) -> Iterator[str]:
        first = index * self.events_per_file
        numbers = np.arange(first, min(first + self.events_per_file, self.count))
        random = np.random.default_rng([self.seed, index])
        late = random.integers(0, self.delay_ms + 1, len(numbers))
        times = np.maximum(FIRST_TIME, FIRST_TIME + numbers * 1000 // self.rate - late)
        return _events(numbers, times, random)


@contextmanager
def _written_at_once(path: Path, modified: int) -> Iterator[BinaryIO]:
    """Hide a file from the engines' listings until it is whole, should another run be reading."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        yield file
    os.utime(draft, (modified, modified))
    draft.rename(path)


def _events(numbers: Any, times: Any, random: np.random.Generator) -> Iterator[str]:
    """The events of these numbers; each draws as much as any other, whatever its kind."""
    count = len(numbers)
    rounds, places = np.divmod(numbers, EVENTS_PER_ROUND)
    last_auction = rounds * AUCTIONS_PER_ROUND + np.minimum(places, AUCTIONS_PER_ROUND) - 1
    last_auction = np.maximum(last_auction, 0)
    hot_auction = last_auction // _HOT * _HOT
    oldest = np.maximum(last_auction - _OPEN_AUCTIONS, 0)
    any_auction = random.integers(oldest, last_auction + 1 + _LEAD)
    active = np.minimum(rounds + 1, _ACTIVE_PEOPLE)
    any_person = rounds + 1 - active + random.integers(0, active + _LEAD)
    hot_person = rounds // _HOT * _HOT
    columns = (
        places,
        times,
        rounds + FIRST_ID,
        last_auction + FIRST_ID,
        np.where(random.random(count) < 0.5, hot_auction, any_auction) + FIRST_ID,
        np.where(random.random(count) < 0.75, hot_person, any_person) + FIRST_ID,
        np.round(10 ** (random.random(count) * 6) * 100).astype(np.int64),
        random.integers(0, 1 << 30, count),
    )
    return map(_line, *(column.tolist() for column in columns))


def _line(
    place: int, time: int, person: int, auction: int, of: int, by: int, price: int, draw: int
) -> str:
    extra = f"{draw:09x}"
    if place > AUCTIONS_PER_ROUND:
        # The hot bidder is not the hot seller.
        bidder = by + 1 if by % _HOT == 0 else by
        number = draw % _CHANNELS
        channel = _HOT_CHANNELS[number % 4] if draw & 4096 else f"channel-{number}"
        url = f"https://www.nexmark.com/item.htm?query=1&channel_id={number}"
        return f"{BID},{time},{of},{bidder},{price},{channel},{url},{extra}"
    if place:
        category = CATEGORIES[draw % len(CATEGORIES)]
        expires = time + 10_000 + draw % 10_000
        item, text = f"item {draw % 1000}", f"{extra * 20}"
        return (
            f"{AUCTION},{time},{auction},{item},{text},{price},{2 * price},"
            f"{expires},{by},{category},{extra}"
        )
    name = f"{_FIRST_NAMES[draw % 10]} {_LAST_NAMES[draw // 10 % 9]}"
    email, card = f"{extra}@{draw % 997}.com", f"{draw:016d}"
    city, state = _CITIES[draw // 100 % 8], STATES[draw // 1000 % 6]
    return f"{PERSON},{time},{person},{name},{email},{card},{city},{state},{extra * 6}"
