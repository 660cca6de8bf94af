"""Answers queries about the keyed states of one operator that is open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from penstock.errors import KeyNotOfTypeError, StateNotQueryableError, UnknownStateError
from penstock.snapshots.json_values import encoded_key, key_of_text
from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.look_up import Cursor, OpenOperator, key_prefix, map_key_codec
from penstock.snapshots.queries.entry_reader import Entry, EntryReader
from penstock.snapshots.queries.query import KeyEntries, StateAnswer, StateQuery
from penstock.state.keys import KeyCodec

_MOST_BYTES = 4 << 20
"""Of stored values in one page; one more value may be larger."""


class OperatorQueries:
    """The states of one open operator by name; any thread may call."""

    def __init__(self, opened: OpenOperator, states: Sequence[KeyedState], operator: str) -> None:
        self._opened = opened
        self._operator = operator
        self.states = list(states)
        self._by_name = {s.info.queryable: s for s in states if s.info.queryable}
        self._by_name |= {state.name: state for state in states}
        self._readers: dict[str, EntryReader] = {}

    def state(self, name: str, *, only_queryable: bool) -> KeyedState:
        """Return a state by its name or its queryable name.

        Raises:
            UnknownStateError: there is none.
            StateNotQueryableError: nobody may look it up.
        """
        state = self._by_name.get(name)
        if state is None:
            known = tuple(state.name for state in self.states)
            raise UnknownStateError(self._operator, name, known)
        if only_queryable and not state.info.queryable:
            raise StateNotQueryableError(self._operator, state.name)
        return state

    def answer(self, query: StateQuery, now: float) -> StateAnswer:
        """Answer a query; `now` decides what has expired.

        Raises:
            UnknownStateError: there is no such state.
            StateNotQueryableError: nobody may look it up.
            KeyNotOfTypeError: a key or prefix is not of the type of the keys.
            BadCursorError: the cursor does not come from an answer.
        """
        state = self.state(query.state, only_queryable=query.only_queryable)
        after = None if query.after is None else Cursor.decode(query.after)
        page = _Pages(self._reader(state), query, int(now * 1000))
        keys, entries, following = None, None, None
        if query.keys:
            keys = [self._key(state, key, query, after, page) for key in query.keys]
        else:
            prefix = b"" if not query.prefix else key_prefix(state, query.prefix)
            entries, following = page.of(self._opened.scan(state, after, prefix))
        return StateAnswer(
            operator=state.uid,
            state=state.name,
            kind=state.kind,
            type=state.info.type,
            key_type=state.key_type,
            queryable=state.info.queryable,
            keys=keys,
            entries=entries,
            next=following,
        )

    def _key(
        self, state: KeyedState, text: str, query: StateQuery, after: Cursor | None, page: _Pages
    ) -> KeyEntries:
        key = _given(state.key_codec, text, are_json=query.are_json)
        encoded, map_key = encoded_key(state.key_codec, key), None
        if query.map_key is not None:
            if not state.is_map:
                raise KeyNotOfTypeError(query.map_key, state.kind, "only map states have map keys")
            codec = map_key_codec(state)
            map_key = encoded_key(codec, _given(codec, query.map_key, are_json=query.are_json))
        entries, following = page.of(self._opened.find(state, encoded, map_key, after))
        return KeyEntries(key, entries, following)

    def _reader(self, state: KeyedState) -> EntryReader:
        reader = self._readers.get(state.name)
        if reader is None:
            reader = self._readers[state.name] = EntryReader(state)
        return reader


class _Pages:
    """Makes pages of entries as a query wants them."""

    def __init__(self, reader: EntryReader, query: StateQuery, now_ms: int) -> None:
        self._reader = reader
        self._limit = query.limit
        self._with_expired = query.with_expired
        self._now_ms = now_ms

    def of(self, entries: Iterator[Entry]) -> tuple[list[dict[str, Any]], str | None]:
        """Return the first entries as JSON, and a cursor if there are more."""
        if not self._with_expired:
            entries = self._reader.alive(entries, self._now_ms)
        found: list[dict[str, Any]] = []
        size, last = 0, b""
        for entry in entries:
            if len(found) == self._limit or size > _MOST_BYTES:
                return found, Cursor(last[2:]).encode()
            found.append(self._reader.read(entry))
            last = entry[0]
            size += len(entry[1])
        return found, None


def _given(codec: KeyCodec, text: str, *, are_json: bool) -> Any:
    """Return a key as JSON from what a user has typed or a program has sent.

    Raises:
        KeyNotOfTypeError: it is no JSON, and has to be.
    """
    try:
        if not are_json:
            return key_of_text(codec, text, msgspec.json.decode)
        return msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise KeyNotOfTypeError(text, "JSON", str(error)) from None
