"""Map state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.state import MapState
from penstock.errors import TypeMismatchError
from penstock.state.delta import Delta
from penstock.state.keyed.key_context import UNLOADED, KeyContext
from penstock.state.keyed.stored_state import StoredState
from penstock.state.keys import KeyCodec
from penstock.state.registry.meta_info import MAP_STATE, NO_VALUE
from penstock.state.ttl.settings import TtlSettings
from penstock.types.serializers import serializer_for

ABSENT: Any = object()
"""Stands for an entry that does not exist."""


class _Entries:
    """The cached entries of one key's map, by encoded map key."""

    __slots__ = ("cache", "cleared", "complete", "written")

    def __init__(self) -> None:
        self.cache: dict[bytes, Any] = {}
        self.written: set[bytes] = set()
        # The cache has all entries of the store that still count.
        self.complete = False
        # All entries of the store have to be deleted.
        self.cleared = False


class KeyedMapState(StoredState, MapState[Any, Any]):
    """A map per key; each map key is an entry of its own in the store."""

    __slots__ = ("_codec", "_codes", "_coerce", "_maps", "_plain", "_read", "_write")

    kind = MAP_STATE

    def __init__(
        self,
        context: KeyContext,
        name: str,
        type_info: TypeInformation,
        key_type_info: TypeInformation,
        value_type_info: TypeInformation,
        ttl: TtlSettings | None = None,
    ) -> None:
        super().__init__(context, name, type_info, ttl)
        serializer = serializer_for(value_type_info)
        self._codec = KeyCodec(key_type_info, context.step)
        self._read = serializer.decode
        self._coerce = serializer.coerce
        self._plain = serializer.plain
        self._write = serializer.write if serializer.immutable else serializer.encode
        self._maps: dict[int, _Entries] = {}
        self._codes: dict[Any, bytes] = {}

    def get(self, key: Any) -> Any:  # noqa: D102
        value = self._entry(key)
        return None if value is ABSENT else value

    def contains(self, key: Any) -> bool:  # noqa: D102
        return self._entry(key) is not ABSENT

    def put(self, key: Any, value: Any) -> None:  # noqa: D102
        if value.__class__ is not self._plain and value is not None:
            value = self._coerced(key, value)
        code = self._code(key)
        entries = self._entries()
        entries.cache[code] = value
        entries.written.add(code)

    def put_all(self, dict_value: dict[Any, Any]) -> None:  # noqa: D102
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:  # noqa: D102
        code = self._code(key)
        entries = self._entries()
        entries.cache[code] = ABSENT
        entries.written.add(code)

    def clear(self) -> None:  # noqa: D102
        entries = self._entries()
        entries.cache = {}
        entries.written = set()
        entries.complete = entries.cleared = True

    def items(self) -> Iterator[tuple[Any, Any]]:  # noqa: D102
        decode = self._codec.decode
        return iter([(decode(code), value) for code, value in self._present()])

    def keys(self) -> Iterator[Any]:  # noqa: D102
        decode = self._codec.decode
        return iter([decode(code) for code, _ in self._present()])

    def values(self) -> Iterator[Any]:  # noqa: D102
        return iter([value for _, value in self._present()])

    def is_empty(self) -> bool:  # noqa: D102
        entries = self._entries()
        if any(value is not ABSENT for value in entries.cache.values()):
            return False
        return entries.complete or all(code in entries.cache for code, _ in self._stored())

    def grow(self, count: int) -> None:  # noqa: D102
        pass

    def take_changes(self, delta: Delta) -> None:  # noqa: D102
        routed = self._context.routed
        changed = [
            index for index, entries in self._maps.items() if entries.written or entries.cleared
        ]
        for index in sorted(changed, key=routed.__getitem__):
            self._take(index, delta)

    def _take(self, index: int, delta: Delta) -> None:
        entries = self._maps[index]
        prefix = self._prefix + self._context.routed[index]
        present = []
        gone = {code for code, _ in self._stored(index)} if entries.cleared else set()
        for code in sorted(entries.written):
            if entries.cache[code] is ABSENT:
                gone.add(code)
            else:
                present.append(code)
        gone.difference_update(present)
        for code in present:
            delta.keys.append(prefix + code)
            delta.values.append(self._written(index, code, entries.cache[code]))
        delta.deletes += [prefix + code for code in sorted(gone)]
        entries.written = set()
        entries.cleared = False

    def _written(self, index: int, code: bytes, value: Any) -> bytes:
        if value is None:
            return NO_VALUE
        try:
            return self._write(value)
        except TypeMismatchError as error:
            raise self._named(error, index, f"[{self._codec.decode(code)!r}]") from error

    def _reset(self, count: int) -> None:
        self._maps = {}
        self._codes = {}

    def _entries(self) -> _Entries:
        index = self._context.current
        entries = self._maps.get(index)
        if entries is None:
            entries = self._maps[index] = _Entries()
        return entries

    def _entry(self, key: Any) -> Any:
        code = self._code(key)
        entries = self._entries()
        value = entries.cache.get(code, UNLOADED)
        if value is not UNLOADED:
            return value
        data = None
        if not entries.complete:
            context = self._context
            data = context.store.get(self._prefix + context.routed[context.current] + code)
        value = entries.cache[code] = ABSENT if data is None else self._decoded(data)
        return value

    def _present(self) -> Iterable[tuple[bytes, Any]]:
        entries = self._entries()
        if not entries.complete:
            loaded = {code: self._decoded(data) for code, data in self._stored()}
            loaded.update(entries.cache)
            entries.cache = loaded
            entries.complete = True
        cache = entries.cache
        return [(code, cache[code]) for code in sorted(cache) if cache[code] is not ABSENT]

    def _stored(self, index: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the map keys and values that the store holds for a key."""
        context = self._context
        prefix = self._prefix + context.routed[context.current if index is None else index]
        start = len(prefix)
        return ((key[start:], data) for key, data in context.store.scan(prefix))

    def _decoded(self, data: bytes) -> Any:
        return self._read(data) if data else None

    def _code(self, key: Any) -> bytes:
        # Equal keys of one of these classes have equal bytes; 1, 1.0 and True do not.
        if key.__class__ is not str and key.__class__ is not int:
            return self._encoded(key)
        code = self._codes.get(key)
        if code is None:
            code = self._codes[key] = self._encoded(key)
        return code

    def _encoded(self, key: Any) -> bytes:
        try:
            return self._codec.encode(key)
        except TypeMismatchError as error:
            raise self._named(error, self._context.current, "[key]") from None

    def _coerced(self, key: Any, value: Any) -> Any:
        try:
            return self._coerce(value)
        except TypeMismatchError as error:
            raise self._named(error, self._context.current, f"[{key!r}]") from None
