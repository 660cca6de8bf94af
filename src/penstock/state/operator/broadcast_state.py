"""Broadcast state: a map with an identical copy in every subtask of an operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import msgspec

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.state import BroadcastState, ReadOnlyBroadcastState
from penstock.errors import InvalidJobError, OperatorStateTypeMismatchError, TypeMismatchError
from penstock.state.keys import KeyCodec
from penstock.types.serializers import serializer_for

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(tuple[bytes, bytes | None]).decode

_Entry = tuple[Any, Any]
"""A map key as it decodes, and its value."""


class OperatorBroadcastState(BroadcastState[Any, Any]):
    """The map of one subtask, by the encoded bytes of its keys: 1, 1.0 and True are three keys.

    Entries are in the order of those bytes, as in a map state, so that equal maps have equal bytes
    in all subtasks.
    """

    __slots__ = ("_codec", "_elements", "_entries", "_is_sorted", "_name", "_serializer", "_step")

    def __init__(
        self,
        step: str,
        name: str,
        key_type: TypeInformation,
        value_type: TypeInformation,
        elements: list[bytes],
    ) -> None:
        self._step = step
        self._name = name
        self._codec = KeyCodec(key_type, step)
        self._serializer = serializer_for(value_type)
        self._elements: list[bytes] | None = elements
        self._entries: dict[bytes, _Entry] | None = None
        self._is_sorted = True

    def get(self, key: Any) -> Any:  # noqa: D102
        entry = self._held().get(self._code(key))
        return None if entry is None else entry[1]

    def contains(self, key: Any) -> bool:  # noqa: D102
        return self._code(key) in self._held()

    def items(self) -> Iterator[tuple[Any, Any]]:  # noqa: D102
        return iter(self._in_order())

    def keys(self) -> Iterator[Any]:  # noqa: D102
        return iter([key for key, _ in self._in_order()])

    def values(self) -> Iterator[Any]:  # noqa: D102
        return iter([value for _, value in self._in_order()])

    def is_empty(self) -> bool:  # noqa: D102
        return not self._held()

    def put(self, key: Any, value: Any) -> None:  # noqa: D102
        self._put_each([(key, value)])

    def put_all(self, dict_value: dict[Any, Any]) -> None:  # noqa: D102
        self._put_each(dict_value.items())

    def remove(self, key: Any) -> None:  # noqa: D102
        if self._held().pop(self._code(key), None) is not None:
            self._has_changed()

    def clear(self) -> None:  # noqa: D102
        self._entries = {}
        self._has_changed()

    def elements(self) -> list[bytes]:
        """Return the encoded entries of the map."""
        # The program may have changed a mutable value in place.
        is_loaded = self._entries is not None
        if self._elements is None or (is_loaded and not self._serializer.immutable):
            self._in_order()
            self._elements = [self._element(c, k, v) for c, (k, v) in self._held().items()]
        return self._elements

    def _held(self) -> dict[bytes, _Entry]:
        if self._entries is None:
            read, decode = self._serializer.decode, self._codec.decode
            pairs = map(_unpack, self._elements or ())
            self._entries = {c: (decode(c), None if v is None else read(v)) for c, v in pairs}
        return self._entries

    def _in_order(self) -> list[_Entry]:
        held = self._held()
        if not self._is_sorted:
            held = self._entries = dict(sorted(held.items(), key=lambda item: item[0]))
            self._is_sorted = True
        return list(held.values())

    def _put_each(self, items: Iterable[tuple[Any, Any]]) -> None:
        coerced = [(self._code(key), self._coerced(key, value)) for key, value in items]
        held, decode = self._held(), self._codec.decode
        for code, value in coerced:
            held[code] = decode(code), value
        self._has_changed()

    def _has_changed(self) -> None:
        self._elements = None
        self._is_sorted = False

    def _element(self, code: bytes, key: Any, value: Any) -> bytes:
        try:
            return _pack((code, None if value is None else self._serializer.encode(value)))
        except TypeMismatchError as error:
            raise self._named(error, key) from None

    def _code(self, key: Any) -> bytes:
        try:
            return self._codec.encode(key)
        except TypeMismatchError as error:
            raise self._named(error, key) from None

    def _coerced(self, key: Any, value: Any) -> Any:
        try:
            return None if value is None else self._serializer.coerce(value)
        except TypeMismatchError as error:
            raise self._named(error, key) from None

    def _named(self, error: TypeMismatchError, key: Any) -> OperatorStateTypeMismatchError:
        path = f"[{key!r}]{'.' if error.path else ''}{error.path}"
        return OperatorStateTypeMismatchError(
            path, error.value, error.type_info, self._step, self._name
        )


class ReadOnlyBroadcastView(ReadOnlyBroadcastState[Any, Any]):
    """A broadcast state as the side that is not broadcast sees it.

    Each subtask gets other records on that side, so writes there would make the copies differ.
    """

    __slots__ = ("_state",)

    def __init__(self, state: OperatorBroadcastState) -> None:
        self._state = state

    def get(self, key: Any) -> Any:  # noqa: D102
        return self._state.get(key)

    def contains(self, key: Any) -> bool:  # noqa: D102
        return self._state.contains(key)

    def items(self) -> Iterator[tuple[Any, Any]]:  # noqa: D102
        return self._state.items()

    def keys(self) -> Iterator[Any]:  # noqa: D102
        return self._state.keys()

    def values(self) -> Iterator[Any]:  # noqa: D102
        return self._state.values()

    def is_empty(self) -> bool:  # noqa: D102
        return self._state.is_empty()

    def clear(self) -> NoReturn:
        """Not allowed."""
        message = "broadcast state can be changed in process_broadcast_element() only"
        raise InvalidJobError(message)
