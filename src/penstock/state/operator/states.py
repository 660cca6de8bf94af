"""Operator state: lists and maps that belong to one operator in one subtask, not to a key.

A version of it is bytes: a task gets the version before its micro-batch and returns the version
after it. Each element is encoded by itself, so that elements can be redistributed to another number
of subtasks without decoding them. The elements of a map are its entries.
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
from penstock.state.operator.broadcast_state import OperatorBroadcastState
from penstock.types.serializers import Serializer, serializer_for
from penstock.types.signature import type_signature

LARGEST_OPERATOR_STATE = 5 * 1024 * 1024
"""Maximum bytes of one list or map, which passes through the driver with every micro-batch."""


class RedistributionMode(StrEnum):
    """How the elements of a list are redistributed when a job is restored."""

    SPLIT = "split"
    """Each element goes to one subtask."""
    UNION = "union"
    """Every subtask gets all elements of all subtasks."""
    BROADCAST = "broadcast"
    """Every subtask gets all elements of one subtask: all have the same."""


_KINDS = {
    RedistributionMode.SPLIT: "list",
    RedistributionMode.UNION: "union list",
    RedistributionMode.BROADCAST: "broadcast",
}


class StoredList(msgspec.Struct, frozen=True, array_like=True):
    """The stored form of one list or map of one subtask."""

    distribution: RedistributionMode
    type: str
    """The signature of the declared type: of a list's element, or of a map as a whole."""
    elements: list[bytes]

    @property
    def declared(self) -> str:
        """Kind and type, for messages and comparisons."""
        return f"{_KINDS[self.distribution]} state of {self.type}"


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(dict[str, StoredList]).decode


def encode_lists(lists: dict[str, StoredList]) -> bytes:
    """Return the bytes of lists by name, the same for equal lists; never empty."""
    return _encode(lists)


def decode_lists(version: bytes) -> dict[str, StoredList]:
    """Return the lists of a version; `b""` stands for none yet."""
    return _decode(version) if version else {}


def redistribute(old: Sequence[bytes], parallelism: int, step: str = "") -> list[bytes]:
    """Redistribute the lists of all old subtasks, in their order, to the new ones. Pure.

    Called once when a job is restored, never between two micro-batches. With the same number of
    subtasks a split list stays where it was; otherwise the sequence of all elements is split into
    parts that differ by at most one element. A broadcast map is the same everywhere, so any copy
    can be used. `step` is for error messages.

    Raises:
        StateDeclaredTwiceError: if two subtasks declare a name differently.
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
        having = [version for version in versions if name in version]
        sources = having if info.distribution is RedistributionMode.BROADCAST else versions
        old_lists = [version[name].elements if name in version else [] for version in sources]
        parts = _split(old_lists, parallelism, info.distribution)
        for lists, elements in zip(new, parts, strict=True):
            lists[name] = StoredList(info.distribution, info.type, elements)
    return [encode_lists(lists) for lists in new]


def _split(
    lists: list[list[bytes]], parallelism: int, distribution: RedistributionMode
) -> list[list[bytes]]:
    row = [element for elements in lists for element in elements]
    if distribution is RedistributionMode.UNION:
        return [row] * parallelism
    if distribution is RedistributionMode.BROADCAST:
        return [lists[i % len(lists)] for i in range(parallelism)]
    if len(lists) == parallelism:
        return lists
    size, longer = divmod(len(row), parallelism)
    starts = [i * size + min(i, longer) for i in range(parallelism + 1)]
    return [row[starts[i] : starts[i + 1]] for i in range(parallelism)]


class OperatorStates(OperatorStateStore):
    """The operator state of one function in one subtask.

    Created from the version that a task starts from, passed to `initialize_state`, and encoded at
    the end of every micro-batch. It stays with its function while that is kept. A state that the
    function no longer declares is kept unchanged.
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
        """The declaration of each state, without elements."""

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> OperatorListState:
        """Return this subtask's list."""
        return self._list(state_descriptor, RedistributionMode.SPLIT)

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> OperatorListState:
        """Return a list that holds the elements of all subtasks after a restore."""
        return self._list(state_descriptor, RedistributionMode.UNION)

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> OperatorBroadcastState:
        """Return the map, which all subtasks must fill equally."""
        _check(self._step, state_descriptor, MapStateDescriptor)
        name, type_info = state_descriptor.name, state_descriptor.type_info
        elements = self._declare(
            name, StoredList(RedistributionMode.BROADCAST, type_signature(type_info), [])
        )
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
        """Return the bytes of all states.

        Raises:
            OperatorStateTooLargeError: if one of them is too large.
            OperatorStateTypeMismatchError: if an element was changed in place to a value that its
                type does not accept.
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
        self, descriptor: ListStateDescriptor, distribution: RedistributionMode
    ) -> OperatorListState:
        _check(self._step, descriptor, ListStateDescriptor)
        name, serializer = descriptor.name, serializer_for(descriptor.element_type_info)
        info = StoredList(distribution, type_signature(serializer.type_info), [])
        elements = self._declare(name, info)
        if name not in self._lists:
            self._lists[name] = OperatorListState(self._step, name, serializer, elements)
        return self._lists[name]

    def _declare(self, name: str, info: StoredList) -> list[bytes]:
        """Record a declaration, and return the stored elements."""
        stored = self._stored.get(name, info)
        known = self._declared.get(name, stored)
        if known.declared != info.declared:
            raise StateDeclaredTwiceError(self._step, name, known.declared, info.declared)
        self._declared[name] = info
        return stored.elements


def _check(step: str, descriptor: StateDescriptor, kind: type[StateDescriptor]) -> None:
    if not isinstance(descriptor, kind):
        what = "broadcast" if kind is MapStateDescriptor else "operator"
        message = f"{what} state is requested by a {kind.__name__}; got {descriptor!r}"
        raise InvalidJobError(message)
    if descriptor.ttl_config is not None:
        message = (
            f"operator state {descriptor.name!r} of step {step!r} cannot have a "
            "time-to-live: remove enable_time_to_live(), and remove old elements yourself"
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
        coerced = self._coerced(values)
        self._held().extend(coerced)
        self._encoded = None

    def update(self, values: Iterable[Any]) -> None:  # noqa: D102
        self._values = self._coerced(values)
        self._encoded = None

    def clear(self) -> None:  # noqa: D102
        self.update([])

    def elements(self) -> list[bytes]:
        """Return the encoded elements of the list."""
        # The program may have changed a mutable element in place.
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

    def _coerced(self, values: Iterable[Any]) -> list[Any]:
        coerce = self._serializer.coerce
        try:
            return [coerce(value) for value in values]
        except TypeMismatchError as error:
            raise self._named(error) from None

    def _named(self, error: TypeMismatchError) -> OperatorStateTypeMismatchError:
        return OperatorStateTypeMismatchError(
            error.path, error.value, error.type_info, self._step, self._name
        )
