"""The functions of the killed job."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from penstock.common import Row, Types
from penstock.connectors.contracts.source import Chunk, SplitRange
from penstock.datastream import (
    CheckpointedFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
)
from penstock.datastream.functions import FunctionInitializationContext, FunctionSnapshotContext
from penstock.datastream.state import ListState, ListStateDescriptor, ValueStateDescriptor
from penstock.testing import ScriptedSource
from tests.crash.ledger_input import NO_PARTNER, WAITING, Result, value_of

COUNTED = Types.ROW([Types.LONG()] * 5)
PLACED = Types.ROW([Types.LONG()] * 8)
STAMPED = Types.ROW_NAMED(
    list(Result._fields),
    [Types.LONG()] * 8 + [Types.STRING(), Types.LONG()],
)


class LaggingSource(ScriptedSource):
    """Takes its time to read."""

    def __init__(self, scripts: dict[str, list[Any]], seconds: float) -> None:
        super().__init__(scripts, Types.LONG())
        self._seconds = seconds

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        time.sleep(self._seconds)
        return super().read(split_range)


class Pace:
    """How long a step takes, so that what comes to it has to wait."""

    def __init__(self, seconds: float, gate: Path | None) -> None:
        self._seconds = seconds
        self._gate = gate

    def open(self) -> None:
        """Wait until the gate is open."""
        while self._gate is not None and not self._gate.exists():
            time.sleep(0.01)

    def record(self) -> None:
        """Take the time of one record."""
        if self._seconds:
            time.sleep(self._seconds)


class Totals(KeyedProcessFunction[int, int, Row]):
    """Counts and adds up the events of a key."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def open(self, runtime_context: RuntimeContext) -> None:
        self._n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self._pace.open()

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[Row]:
        self._pace.record()
        n, total = (self._n.value() or 0) + 1, (self._total.value() or 0) + value_of(value)
        self._n.update(n)
        self._total.update(total)
        yield Row(value, ctx.get_current_key(), n, total, NO_PARTNER)


class Join(KeyedCoProcessFunction[int, int, int, Row]):
    """Lets a payment meet the oldest order of its key that waits, or wait for one itself."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def open(self, runtime_context: RuntimeContext) -> None:
        self._n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))
        self._balance = runtime_context.get_state(ValueStateDescriptor("balance", Types.LONG()))
        self._orders = runtime_context.get_list_state(ListStateDescriptor("orders", Types.LONG()))
        self._payments = runtime_context.get_list_state(
            ListStateDescriptor("payments", Types.LONG())
        )
        self._pace.open()

    def process_element1(self, value: int, ctx: KeyedCoProcessFunction.Context) -> Iterable[Row]:
        yield self._meet(value, value_of(value), ctx, self._orders, self._payments)

    def process_element2(self, value: int, ctx: KeyedCoProcessFunction.Context) -> Iterable[Row]:
        yield self._meet(value, -value_of(value), ctx, self._payments, self._orders)

    def _meet(
        self,
        event: int,
        worth: int,
        ctx: KeyedCoProcessFunction.Context,
        own: ListState[int],
        others: ListState[int],
    ) -> Row:
        self._pace.record()
        n, balance = (self._n.value() or 0) + 1, (self._balance.value() or 0) + worth
        self._n.update(n)
        self._balance.update(balance)
        partner, *rest = [*others.get()] or [NO_PARTNER]
        if partner == NO_PARTNER:
            own.update([*own.get(), event][-WAITING:])
        else:
            others.update(rest)
        return Row(event, ctx.get_current_key(), n, balance, partner)


class Recent(KeyedProcessFunction[int, Row, Row]):
    """Numbers the events of a bucket, and remembers the last three in a list."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._m = runtime_context.get_state(ValueStateDescriptor("m", Types.LONG()))
        self._last = runtime_context.get_list_state(ListStateDescriptor("last", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterable[Row]:
        m = (self._m.value() or 0) + 1
        last = [*self._last.get(), value[0]][-3:]
        self._m.update(m)
        self._last.update(last)
        yield Row(*value, ctx.get_current_key(), m, sum(last))


class Stamps(MapFunction[Row, Row], CheckpointedFunction):
    """Stamps events with a token of its own and a number, both kept in operator state."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        descriptor = ListStateDescriptor("stamps", Types.TUPLE([Types.STRING(), Types.LONG()]))
        self._state = context.get_operator_state_store().get_list_state(descriptor)
        self._stamps = [tuple(stamp) for stamp in self._state.get()]

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._state.update(list(self._stamps))

    def map(self, value: Row) -> Row:
        if not self._stamps:
            self._stamps.append((uuid4().hex[:12], 0))
        token, number = self._stamps[0]
        self._stamps[0] = (token, number + 1)
        return Row(*value, token, number + 1)
