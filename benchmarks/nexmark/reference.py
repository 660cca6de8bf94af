"""The answers of the queries in plain Python, and how an engine's answer is compared with them.

Nothing here is shared with the queries: each answer is what the sentence in `queries` says,
computed over all events at once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from benchmarks.contract import WrongResultError
from benchmarks.nexmark.events import AUCTION, BID, PERSON

Row = tuple[Any, ...]
Event = list[str]
SECOND = 1_000


def expected(query: str, lines: Iterable[str]) -> list[Row]:
    """What a query answers."""
    return sorted(ANSWERS[query](lines))


def verify(query: str, rows: Iterable[Sequence[Any]], lines: Iterable[str]) -> None:
    """Compare the rows of an engine with the answer."""
    found = Counter(FINAL.get(query, _all)(map(tuple, rows)))
    wanted = Counter(expected(query, lines))
    if found == wanted:
        return
    missing, unknown = wanted - found, found - wanted
    msg = f"{query}: of {wanted.total()} rows {missing.total()} are missing"
    msg += f" (such as {min(missing)})" if missing else ""
    msg += f", {unknown.total()} of {found.total()} are wrong"
    msg += f" (such as {min(unknown)})" if unknown else ""
    raise WrongResultError(msg)


def _all(rows: Iterable[Row]) -> Iterable[Row]:
    return rows


def _last_of_each(rows: Iterable[Row]) -> Iterable[Row]:
    """What stands in the end, of rows that take each other's place; the last is the greatest."""
    last: dict[Row, Row] = {}
    for row in rows:
        of = row[2:4]
        last[of] = max(row, last.get(of, row))
    return last.values()


def _of(kind: str, lines: Iterable[str]) -> Iterator[Event]:
    return (line.split(",") for line in lines if line.startswith(f"{kind},"))


def _q1(lines: Iterable[str]) -> Iterable[Row]:
    for _, time, auction, bidder, price, *_ in _of(BID, lines):
        yield int(auction), int(time), int(bidder), int(price) * 0.908


def _q2(lines: Iterable[str]) -> Iterable[Row]:
    for _, _, auction, _, price, *_ in _of(BID, lines):
        if int(auction) % 123 == 0:
            yield int(auction), int(price)


def _q3(lines: Iterable[str]) -> Iterable[Row]:
    lines = list(lines)
    people = {p[2]: (p[3], p[6], p[7]) for p in _of(PERSON, lines) if p[7] in ("OR", "ID", "CA")}
    for auction in _of(AUCTION, lines):
        if auction[9] == "10" and auction[8] in people:
            yield *people[auction[8]], int(auction[2])


def _q5(lines: Iterable[str]) -> Iterable[Row]:
    step, size = 2 * SECOND, 10 * SECOND
    windows: dict[int, Counter[int]] = defaultdict(Counter)
    for _, time, auction, *_ in _of(BID, lines):
        first_end = int(time) // step * step + step
        for end in range(first_end, first_end + size, step):
            windows[end][int(auction)] += 1
    for end, counts in windows.items():
        count, auction_before = max((count, -auction) for auction, count in counts.items())
        yield end, -auction_before, count


def _q7(lines: Iterable[str]) -> Iterable[Row]:
    windows: dict[int, list[Row]] = defaultdict(list)
    for _, time, auction, bidder, price, *_ in _of(BID, lines):
        bid = (int(price), int(time), int(auction), int(bidder))
        windows[int(time) // (10 * SECOND)].append(bid)
    return map(max, windows.values())


def _q8(lines: Iterable[str]) -> Iterable[Row]:
    lines, size = list(lines), 10 * SECOND
    sellers = {(a[8], int(a[1]) // size) for a in _of(AUCTION, lines)}
    for _, time, number, name, *_ in _of(PERSON, lines):
        if (number, int(time) // size) in sellers:
            yield int(number), name, int(time) // size * size


def _q11(lines: Iterable[str]) -> Iterable[Row]:
    times: dict[int, list[int]] = defaultdict(list)
    for _, time, _, bidder, *_ in _of(BID, lines):
        times[int(bidder)].append(int(time))
    for who, all_of_it in times.items():
        session: list[int] = []
        for moment in sorted(all_of_it):
            if session and moment > session[-1] + 10 * SECOND:
                yield _session(who, session)
                session = []
            session.append(moment)
        yield _session(who, session)


def _session(bidder: int, times: list[int]) -> Row:
    return bidder, len(times), times[0], times[-1] + 10 * SECOND


def _q18(lines: Iterable[str]) -> Iterable[Row]:
    return _last_of_each(
        (int(time), int(price), int(auction), int(bidder), channel, url, extra)
        for _, time, auction, bidder, price, channel, url, extra in _of(BID, lines)
    )


ANSWERS: dict[str, Callable[[Iterable[str]], Iterable[Row]]] = {
    "q1": _q1,
    "q2": _q2,
    "q3": _q3,
    "q5": _q5,
    "q7": _q7,
    "q8": _q8,
    "q11": _q11,
    "q18": _q18,
}
FINAL: dict[str, Callable[[Iterable[Row]], Iterable[Row]]] = {"q18": _last_of_each}
"""Of which rows only the last ones of each key stand in the end."""
