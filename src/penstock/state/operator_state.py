"""Operator state: lists and maps that belong to one operator in one subtask, not to a key.

Everything is bytes that travel whole: a task gets the version before its micro-batch and answers
with the version after it. Each element is encoded by itself, so that elements can be dealt out to
another number of subtasks without knowing what they are. The elements of a map are its entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from penstock.datastream.state import (
    ListState,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateStore,
    StateDescriptor,
)
from penstock.errors import (
    InvalidJobError,
    OperatorStateTooLargeError,
    OperatorStateTypeMismatchError,
    StateDeclaredTwiceError,
    TypeMismatchError,
)
from penstock.state.broadcast_state import OperatorBroadcastState
from penstock.state.serializers import Serializer, serializer_for
from penstock.state.type_text import spell

__all__ = [
    "LARGEST_OPERATOR_STATE",
    "Distribution",
    "OperatorListState",
    "OperatorStates",
    "StoredList",
    "decode_lists",
    "encode_lists",
    "redistribute",
]

LARGEST_OPERATOR_STATE = 5 * 1024 * 1024
"""Bytes of one list or map; it passes through the driver with every micro-batch."""


class Distribution(StrEnum):
    """Who gets a list's elements when a job is restored."""

    SPLIT = "split"
    """Each element goes to one subtask."""
    UNION = "union"
    """Every subtask gets all elements of all subtasks."""
    BROADCAST = "broadcast"
    """Every subtask gets all elements of one: all have the same."""


_KINDS = {
    Distribution.SPLIT: "list",
    Distribution.UNION: "union list",
    Distribution.BROADCAST: "broadcast",
}


class StoredList(msgspec.Struct, frozen=True, array_like=True):
    """One list or map of one subtask, as it is stored."""

    distribution: Distribution
    type: str
    """The declared type as text: of an element of a list, or of a map as a whole."""
    elements: list[bytes]

    @property
    def declared(self) -> str:
        """What it was declared as, for messages and comparisons."""
        return f"{_KINDS[self.distribution]} state of {self.type}"


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(dict[str, StoredList]).decode


def encode_lists(lists: dict[str, StoredList]) -> bytes:
    """Return lists by name as bytes, the same for the same lists; never empty."""
    return _encode(lists)


def decode_lists(version: bytes) -> dict[str, StoredList]:
    """Return the lists of a version; `b""` stands for none yet."""
    return _decode(version) if version else {}


def redistribute(old: Sequence[bytes], parallelism: int, step: str = "") -> list[bytes]:
    """Deal the lists of all old subtasks, in their order, out to the new ones. Pure.

    Called once when a job is restored, never between two micro-batches. With the same number of
    subtasks a split list stays where it was; otherwise all elements in a row are cut into pieces
    that differ by one element at most. A broadcast map is the same everywhere, so anyone's copy
    will do. `step` is for the message.

    Raises:
        StateDeclaredTwiceError: if two subtasks know a name as different things.
    """
    versions = [decode_lists(version) for version in old]
    known: dict[str, StoredList] = {}
    for version in versions:
        for name, stored in version.items():
            first = known.setdefault(name, stored)
            if first.declared != stored.declared:
                raise StateDeclaredTwiceError(step, name, first.declared, stored.declared)
    new: list[dict[str, StoredList]] = [{} for _ in range(parallelism)]
    for name, info in known.items():
        knowing = [v for v in versions if name in v]
        asked = knowing if info.distribution is Distribution.BROADCAST else versions
        given = [v[name].elements if name in v else [] for v in asked]
        dealt = _dealt_out(given, parallelism, info.distribution)
        for lists, elements in zip(new, dealt, strict=True):
            lists[name] = StoredList(info.distribution, info.type, elements)
    return [encode_lists(lists) for lists in new]


def _dealt_out(
    given: list[list[bytes]], parallelism: int, distribution: Distribution
) -> list[list[bytes]]:
    row = [element for elements in given for element in elements]
    if distribution is Distribution.UNION:
        return [row] * parallelism
    if distribution is Distribution.BROADCAST:
        return [given[i % len(given)] for i in range(parallelism)]
    if len(given) == parallelism:
        return given
    size, longer = divmod(len(row), parallelism)
    starts = [i * size + min(i, longer) for i in range(parallelism + 1)]
    return [row[starts[i] : starts[i + 1]] for i in range(parallelism)]


class OperatorStates(OperatorStateStore):
    """The operator state of one function in one subtask.

    Made from the version a task starts from, handed to `initialize_state`, and encoded at the end
    of every micro-batch. It stays with its function for as long as that is kept. A state nobody
    asks for any more is carried on as it is.
    """

    def __init__(
        self, step: str, version: bytes = b"", largest: int = LARGEST_OPERATOR_STATE
    ) -> None:
        self._step = step
        self._largest = largest
        self._stored = decode_lists(version)
        self._lists: dict[str, OperatorListState] = {}
        self._maps: dict[str, OperatorBroadcastState] = {}
        self._declared: dict[str, StoredList] = {}
        """What each state was declared as, without elements."""

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> OperatorListState:
        """Return this subtask's list."""
        return self._list(state_descriptor, Distribution.SPLIT)

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> OperatorListState:
        """Return a list that holds the elements of all subtasks after a restore."""
        return self._list(state_descriptor, Distribution.UNION)

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> OperatorBroadcastState:
        """Return the map that all subtasks are to fill alike."""
        _check(self._step, state_descriptor, MapStateDescriptor)
        name, type_info = state_descriptor.name, state_descriptor.type_info
        elements = self._declare(name, StoredList(Distribution.BROADCAST, spell(type_info), []))
        if name not in self._maps:
            self._maps[name] = OperatorBroadcastState(
                self._step,
                name,
                state_descriptor.key_type_info,
                state_descriptor.value_type_info,
                elements,
            )
        return self._maps[name]

    def encode(self) -> bytes:
        """Return what all states hold now; whoever starts from it finds them so.

        Raises:
            OperatorStateTooLargeError: if one of them is too large to travel.
            OperatorStateTypeMismatchError: if an element was changed in place into what does not
                fit its type.
        """
        lists = dict(self._stored)
        held = {n: s.elements() for n, s in self._lists.items()}
        held |= {n: s.elements() for n, s in self._maps.items()}
        for name, elements in held.items():
            info = self._declared[name]
            lists[name] = StoredList(info.distribution, info.type, elements)
        for name, stored in lists.items():
            size = sum(map(len, stored.elements))
            if size > self._largest:
                raise OperatorStateTooLargeError(self._step, name, size, self._largest)
        return encode_lists(lists)

    def _list(
        self, descriptor: ListStateDescriptor, distribution: Distribution
    ) -> OperatorListState:
        _check(self._step, descriptor, ListStateDescriptor)
        name, serializer = descriptor.name, serializer_for(descriptor.element_type_info)
        info = StoredList(distribution, spell(serializer.type_info), [])
        elements = self._declare(name, info)
        if name not in self._lists:
            self._lists[name] = OperatorListState(self._step, name, serializer, elements)
        return self._lists[name]

    def _declare(self, name: str, info: StoredList) -> list[bytes]:
        """Take note of what a state is, and return what is stored of it."""
        stored = self._stored.get(name, info)
        known = self._declared.get(name, stored)
        if known.declared != info.declared:
            raise StateDeclaredTwiceError(self._step, name, known.declared, info.declared)
        self._declared[name] = info
        return stored.elements


def _check(step: str, descriptor: StateDescriptor, kind: type[StateDescriptor]) -> None:
    if not isinstance(descriptor, kind):
        what = "broadcast" if kind is MapStateDescriptor else "operator"
        message = f"{what} state is asked for by a {kind.__name__}; got {descriptor!r}"
        raise InvalidJobError(message)
    if descriptor.ttl_config is not None:
        message = (
            f"operator state {descriptor.name!r} of step {step!r} cannot have a "
            "time-to-live: remove enable_time_to_live(), and take out what is too old yourself"
        )
        raise InvalidJobError(message)


class OperatorListState(ListState[Any]):
    """One list of operator state: `get`, `add`, `add_all`, `update` and `clear` at any time."""

    __slots__ = ("_encoded", "_name", "_serializer", "_step", "_values")

    def __init__(self, step: str, name: str, serializer: Serializer, elements: list[bytes]) -> None:
        self._name = name
        self._step = step
        self._serializer = serializer
        self._encoded: list[bytes] | None = elements
        self._values: list[Any] | None = None

    def get(self) -> list[Any]:  # noqa: D102
        return list(self._held())

    def add(self, value: Any) -> None:  # noqa: D102
        self.add_all([value])

    def add_all(self, values: Iterable[Any]) -> None:  # noqa: D102
        fitted = self._fitted(values)
        self._held().extend(fitted)
        self._encoded = None

    def update(self, values: Iterable[Any]) -> None:  # noqa: D102
        self._values = self._fitted(values)
        self._encoded = None

    def clear(self) -> None:  # noqa: D102
        self.update([])

    def elements(self) -> list[bytes]:
        """Return what the list holds now."""
        # An element that can be changed in place may have been, by whoever got it.
        if self._values is not None and not (self._encoded and self._serializer.immutable):
            try:
                self._encoded = [self._serializer.encode(value) for value in self._values]
            except TypeMismatchError as error:
                raise self._named(error) from None
        return self._encoded or []

    def _held(self) -> list[Any]:
        if self._values is None:
            self._values = [self._serializer.decode(data) for data in self._encoded or ()]
        return self._values

    def _fitted(self, values: Iterable[Any]) -> list[Any]:
        fit = self._serializer.fit
        try:
            return [fit(value) for value in values]
        except TypeMismatchError as error:
            raise self._named(error) from None

    def _named(self, error: TypeMismatchError) -> OperatorStateTypeMismatchError:
        return OperatorStateTypeMismatchError(
            self._step, self._name, error.path, error.shown, error.type_info
        )
