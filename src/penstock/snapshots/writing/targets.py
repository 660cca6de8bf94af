"""The state that rows are written to, and the columns that it takes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    RawStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.savepoint.layout import SavedOperator
from penstock.state.keyed.aggregating_state import KeyedAggregatingState
from penstock.state.keyed.list_state import KeyedListState
from penstock.state.keyed.map_state import KeyedMapState
from penstock.state.keyed.raw_state import KeyedRawState
from penstock.state.keyed.reducing_state import KeyedReducingState
from penstock.state.keyed.value_state import KeyedValueState
from penstock.state.registry.meta_info import (
    LIST_STATE,
    MAP_STATE,
    TIMERS,
    StateMetaInfo,
    TtlMetaInfo,
)
from penstock.state.ttl.settings import ttl_settings_of
from penstock.state.window_encoding import COUNT, TIME
from penstock.types.signature import PICKLED, type_signature

KEY, MAP_KEY, VALUE, TIME_OF_TIMER = "key", "map key", "value", "time"
START, END, WINDOW, ALIVE_SINCE = "window start", "window end", "window", "last access"
ENCODED_KEY, NAMESPACE = "stored key", "namespace"

_NAMES = {
    KEY: ("key",),
    ENCODED_KEY: ("key_bytes",),
    MAP_KEY: ("user_map_key", "map_key"),
    TIME_OF_TIMER: ("expiration_timestamp_ms", "time", "timestamp"),
    START: ("window_start",),
    END: ("window_end",),
    WINDOW: ("window",),
    ALIVE_SINCE: ("alive_since",),
    NAMESPACE: ("namespace",),
}
_VALUES = {
    LIST_STATE: ("list_value", "value"),
    MAP_STATE: ("user_map_value", "value", "map_value"),
}

_KINDS: dict[type[StateDescriptor], str] = {
    ValueStateDescriptor: KeyedValueState.kind,
    ListStateDescriptor: KeyedListState.kind,
    MapStateDescriptor: KeyedMapState.kind,
    ReducingStateDescriptor: KeyedReducingState.kind,
    AggregatingStateDescriptor: KeyedAggregatingState.kind,
    RawStateDescriptor: KeyedRawState.kind,
}


def info_of(descriptor: StateDescriptor, windows: str = "") -> StateMetaInfo:
    """Return the registry entry of a state that a program declares so; its table is not assigned.

    Raises:
        TypeError: there is no keyed state for the descriptor.
    """
    kind = next((k for cls, k in _KINDS.items() if isinstance(descriptor, cls)), None)
    if kind is None:
        message = f"a state is declared by a StateDescriptor; got {descriptor!r}"
        raise TypeError(message)
    settings, ttl = ttl_settings_of(descriptor.ttl_config), None
    if settings is not None:
        ttl = TtlMetaInfo(settings.millis, int(time.time() * 1000), settings.in_full_snapshot)
    return StateMetaInfo(
        0,
        kind,
        type_signature(descriptor.type_info),
        windows=windows,
        ttl=ttl,
        queryable=descriptor.get_queryable_state_name() or "",
    )


TIMERS_INFO = StateMetaInfo(0, TIMERS, "LONG")
"""The registry entry of timers."""


@dataclass(frozen=True, slots=True)
class StateTarget:
    """A state of an operator in the savepoint that is written."""

    operator: SavedOperator
    parallelism: int
    """The number of subtasks, each of which has a file."""
    state: str
    info: StateMetaInfo

    @property
    def is_untyped(self) -> bool:
        """Whether keys have no declared type."""
        return self.is_untyped_key(self.operator.key_type)

    @staticmethod
    def is_untyped_key(signature: str) -> bool:
        """Whether a signature stands for keys without a declared type."""
        return signature in ("", PICKLED)

    def with_table(self, table: int) -> StateTarget:
        """Return it with a number for its table."""
        info = msgspec.structs.replace(self.info, table=table)
        return StateTarget(self.operator, self.parallelism, self.state, info)


def columns_by_role(
    target: StateTarget, names: Sequence[str]
) -> tuple[dict[str, str], list[tuple[str, ...]]]:
    """Return the column for each part of an entry, and the names of those that are missing."""
    found: dict[str, str] = {}
    missing: list[tuple[str, ...]] = []

    def look_for(role: str, accepted: tuple[str, ...], *, needed: bool = True) -> None:
        name = next((one for one in accepted if one in names), None)
        if name is not None:
            found[role] = name
        elif needed:
            missing.append(accepted)

    info = target.info
    if target.is_untyped:
        look_for(ENCODED_KEY, _NAMES[ENCODED_KEY], needed=False)
    if ENCODED_KEY not in found:
        look_for(KEY, _NAMES[KEY])
    else:
        look_for(KEY, _NAMES[KEY], needed=False)
    if info.kind == TIMERS:
        look_for(TIME_OF_TIMER, _NAMES[TIME_OF_TIMER])
        for role in (START, END, WINDOW, NAMESPACE):
            look_for(role, _NAMES[role], needed=False)
        return found, missing
    if info.windows == TIME:
        look_for(START, _NAMES[START])
        look_for(END, _NAMES[END])
    elif info.windows == COUNT:
        look_for(WINDOW, _NAMES[WINDOW])
    if info.kind == MAP_STATE:
        look_for(MAP_KEY, _NAMES[MAP_KEY])
    look_for(VALUE, _VALUES.get(info.kind, ("value",)))
    if info.ttl is not None:
        look_for(ALIVE_SINCE, _NAMES[ALIVE_SINCE], needed=False)
    return found, missing
