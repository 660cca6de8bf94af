"""NEXMark's queries as a PyFlink program; penstock runs it as it is, `pyflink` meaning penstock.

Each query takes lines and returns a stream of tuples. Like any program that was written with care
it parses only the columns it needs and says what type everything has.

- q1: the bids with their prices in euros.
- q2: the bids for every 123rd auction.
- q3: who sells in category 10 and lives in Oregon, Idaho or California.
- q5: for the last ten seconds, every two seconds: the auction with the most bids, of several
  the one with the lowest id.
- q7: the highest bid of every ten seconds, of several the latest.
- q8: who became a member and opened an auction within the same ten seconds.
- q11: how often each bidder bid in each session, which ends after ten seconds without a bid.
- q18: the last bid of each bidder for each auction, of several at one time the highest; every bid
  that takes this place is handed on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyflink.common import Duration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream.functions import (
    AggregateFunction,
    FilterFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
)
from pyflink.datastream.state import ListStateDescriptor, ValueStateDescriptor
from pyflink.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

DELAY_MS = 1_000
"""No event is later than this."""


class OfKind(FilterFunction):  # type: ignore[misc]
    """Lets the lines of some kinds of events through."""

    def __init__(self, kinds: str) -> None:
        self._kinds = kinds

    def filter(self, value: str) -> bool:
        return value[0] in self._kinds


class SecondColumn(TimestampAssigner):  # type: ignore[misc]
    """The event time of a tuple is its second column."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        time: int = value[1]
        return time


def timed(stream: Any) -> Any:
    """Give records of (something, event time, …) their timestamps and watermarks."""
    late = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(DELAY_MS))
    return stream.assign_timestamps_and_watermarks(late.with_timestamp_assigner(SecondColumn()))


def longs(count: int) -> Any:
    return Types.TUPLE([Types.LONG()] * count)


# q1: currency conversion


def bid_in_euros(line: str) -> tuple[int, int, int, float]:
    _, time, auction, bidder, price, _ = line.split(",", 5)
    return int(auction), int(time), int(bidder), int(price) * 0.908


def q1(lines: Any) -> Any:
    euros = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG(), Types.DOUBLE()])
    return lines.filter(OfKind("B")).map(bid_in_euros, output_type=euros)


# q2: selection


def auction_and_price(line: str) -> tuple[int, int]:
    _, _, auction, _, price, _ = line.split(",", 5)
    return int(auction), int(price)


def q2(lines: Any) -> Any:
    bids = lines.filter(OfKind("B")).map(auction_and_price, output_type=longs(2))
    return bids.filter(lambda bid: bid[0] % 123 == 0)


# q3: local item suggestion


def person(line: str) -> tuple[int, str, str, str]:
    _, _, number, name, _, _, city, state, _ = line.split(",", 8)
    return int(number), name, city, state


def seller_and_auction(line: str) -> tuple[int, int, int]:
    columns = line.split(",", 10)
    return int(columns[8]), int(columns[2]), int(columns[9])


class LocalItems(KeyedCoProcessFunction):  # type: ignore[misc]
    """Join a person with the auctions it opens, whichever comes first."""

    def open(self, runtime_context: RuntimeContext) -> None:
        text = Types.STRING()
        who = ValueStateDescriptor("person", Types.TUPLE([text, text, text]))
        self._person = runtime_context.get_state(who)
        waiting = ListStateDescriptor("auctions", Types.LONG())
        self._waiting = runtime_context.get_list_state(waiting)

    def process_element1(self, value: Any, ctx: Any) -> Iterator[tuple[str, str, str, int]]:
        """Take a person."""
        _, name, city, state = value
        self._person.update((name, city, state))
        for auction in self._waiting.get():
            yield name, city, state, auction
        self._waiting.clear()

    def process_element2(self, value: Any, ctx: Any) -> Iterator[tuple[str, str, str, int]]:
        """Take an auction."""
        who = self._person.value()
        if who is None:
            self._waiting.add(value[1])
        else:
            yield *who, value[1]


def q3(lines: Any) -> Any:
    text, number = Types.STRING(), Types.LONG()
    people = (
        lines.filter(OfKind("P"))
        .map(person, output_type=Types.TUPLE([number, text, text, text]))
        .filter(lambda one: one[3] in ("OR", "ID", "CA"))
    )
    auctions = (
        lines.filter(OfKind("A"))
        .map(seller_and_auction, output_type=longs(3))
        .filter(lambda one: one[2] == 10)
    )
    people_by_id = people.key_by(lambda one: one[0], key_type=number)
    auctions_by_seller = auctions.key_by(lambda one: one[0], key_type=number)
    joined = Types.TUPLE([text, text, text, number])
    return people_by_id.connect(auctions_by_seller).process(LocalItems(), output_type=joined)


# q5: hot items


class Count(AggregateFunction):  # type: ignore[misc]
    """How many there are."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class EndKeyCount(ProcessWindowFunction):  # type: ignore[misc]
    def process(
        self, key: int, context: Any, elements: Iterable[int]
    ) -> Iterator[tuple[int, int, int]]:
        for count in elements:
            yield context.window().end, key, count


def auction_and_time(line: str) -> tuple[int, int]:
    _, time, auction, _ = line.split(",", 3)
    return int(auction), int(time)


def hotter(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    return one if (-one[2], one[1]) <= (-other[2], other[1]) else other


def q5(lines: Any) -> Any:
    bids = timed(lines.filter(OfKind("B")).map(auction_and_time, output_type=longs(2)))
    counts = (
        bids.key_by(lambda bid: bid[0], key_type=Types.LONG())
        .window(SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(2)))
        .aggregate(
            Count(),
            window_function=EndKeyCount(),
            accumulator_type=Types.LONG(),
            output_type=longs(3),
        )
    )
    # A count's own time is just before the end of its window.
    return (
        counts.key_by(lambda counted: counted[0], key_type=Types.LONG())
        .window(TumblingEventTimeWindows.of(Time.seconds(2)))
        .reduce(hotter, output_type=longs(3))
    )


# q7: highest bid


def price_first(line: str) -> tuple[int, int, int, int]:
    _, time, auction, bidder, price, _ = line.split(",", 5)
    return int(price), int(time), int(auction), int(bidder)


def higher(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return one if one >= other else other


def q7(lines: Any) -> Any:
    bids = timed(lines.filter(OfKind("B")).map(price_first, output_type=longs(4)))
    every = TumblingEventTimeWindows.of(Time.seconds(10))
    return bids.window_all(every).reduce(higher, output_type=longs(4))


# q8: monitor new users


def member_or_seller(line: str) -> tuple[int, int, str]:
    if line[0] == "P":
        _, time, number, name, _ = line.split(",", 4)
        return int(number), int(time), name
    columns = line.split(",", 9)
    return int(columns[8]), int(columns[1]), ""


class MemberAndSeller(AggregateFunction):  # type: ignore[misc]
    """The name, once it was there, and whether an auction was."""

    def create_accumulator(self) -> tuple[str, bool]:
        return "", False

    def add(self, value: tuple[int, int, str], accumulator: tuple[str, bool]) -> tuple[str, bool]:
        name, sells = accumulator
        return (value[2], sells) if value[2] else (name, True)

    def get_result(self, accumulator: tuple[str, bool]) -> tuple[str, bool]:
        return accumulator

    def merge(self, acc_a: tuple[str, bool], acc_b: tuple[str, bool]) -> tuple[str, bool]:
        return acc_a[0] or acc_b[0], acc_a[1] or acc_b[1]


class NewSeller(ProcessWindowFunction):  # type: ignore[misc]
    def process(
        self, key: int, context: Any, elements: Iterable[tuple[str, bool]]
    ) -> Iterator[tuple[int, str, int]]:
        for name, sells in elements:
            if name and sells:
                yield key, name, context.window().start


def q8(lines: Any) -> Any:
    text, number = Types.STRING(), Types.LONG()
    either = Types.TUPLE([number, number, text])
    seen = timed(lines.filter(OfKind("PA")).map(member_or_seller, output_type=either))
    return (
        seen.key_by(lambda one: one[0], key_type=number)
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .aggregate(
            MemberAndSeller(),
            window_function=NewSeller(),
            accumulator_type=Types.TUPLE([Types.STRING(), Types.BOOLEAN()]),
            output_type=Types.TUPLE([number, text, number]),
        )
    )


# q11: user sessions


class KeyCountSession(ProcessWindowFunction):  # type: ignore[misc]
    def process(
        self, key: int, context: Any, elements: Iterable[int]
    ) -> Iterator[tuple[int, int, int, int]]:
        for count in elements:
            yield key, count, context.window().start, context.window().end


def bidder_and_time(line: str) -> tuple[int, int]:
    _, time, _, bidder, _ = line.split(",", 4)
    return int(bidder), int(time)


def q11(lines: Any) -> Any:
    bids = timed(lines.filter(OfKind("B")).map(bidder_and_time, output_type=longs(2)))
    return (
        bids.key_by(lambda bid: bid[0], key_type=Types.LONG())
        .window(EventTimeSessionWindows.with_gap(Time.seconds(10)))
        .aggregate(
            Count(),
            window_function=KeyCountSession(),
            accumulator_type=Types.LONG(),
            output_type=longs(4),
        )
    )


# q18: last bid


def whole_bid(line: str) -> tuple[int, int, int, int, str, str, str]:
    _, time, auction, bidder, price, channel, url, extra = line.split(",")
    return int(time), int(price), int(auction), int(bidder), channel, url, extra


class LastBid(KeyedProcessFunction):  # type: ignore[misc]
    """Keep the last bid and hand on each that takes its place."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._last = runtime_context.get_state(ValueStateDescriptor("last", BID))

    def process_element(self, value: tuple[Any, ...], ctx: Any) -> Iterator[tuple[Any, ...]]:
        last = self._last.value()
        if last is None or value >= last:
            self._last.update(value)
            yield value


BID = Types.TUPLE([*[Types.LONG()] * 4, *[Types.STRING()] * 3])


def q18(lines: Any) -> Any:
    bids = lines.filter(OfKind("B")).map(whole_bid, output_type=BID)
    return bids.key_by(lambda bid: (bid[3], bid[2]), key_type=longs(2)).process(
        LastBid(), output_type=BID
    )


QUERIES: dict[str, Callable[[Any], Any]] = {
    "q1": q1,
    "q2": q2,
    "q3": q3,
    "q5": q5,
    "q7": q7,
    "q8": q8,
    "q11": q11,
    "q18": q18,
}
