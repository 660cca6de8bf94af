"""Looks up the state of jobs over HTTP, as Flink's `QueryableStateClient` does over its own."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from penstock.queryable.answers import Entry, Known, LookUp, Page
from penstock.queryable.connection import Connection
from penstock.queryable.errors import StateServerError

COMMITTED = "committed"
LATEST = "latest"

A = TypeVar("A")


class QueryableStateClient:
    """A client of one server; any thread may call.

    Keys are numbers, texts, truth values, bytes, or lists and dicts of these for tuples and rows.
    Where a call has them: `level` is `committed` (the last completed checkpoint) or `latest` (the
    last micro-batch of the running job), `checkpoint` is the id of one that the job retains, and
    `max_staleness` a duration such as `5s`.
    """

    def __init__(self, url: str, token: str | None = None, timeout_s: float = 30.0) -> None:
        """Use the server at an address such as `http://localhost:8081`."""
        self._connection = Connection(url, token, timeout_s)

    def get(
        self,
        job: str,
        operator: str,
        state: str,
        key: Any,
        *,
        map_key: Any = None,
        level: str = COMMITTED,
        checkpoint: int | None = None,
        max_staleness: str | None = None,
        with_expired: bool = False,
        after: str | None = None,
    ) -> LookUp:
        """Look up one key; `.keys[0].value` is the value, None if there is none.

        Raises:
            QueryableStateError: the state cannot be read.
        """
        parameters = _level(level, checkpoint, max_staleness, with_expired)
        parameters += [("key", _json(key)), ("after", after)]
        if map_key is not None:
            parameters.append(("map_key", _json(map_key)))
        return self._get(_path(job, operator, state), parameters, LookUp)

    def value(self, job: str, operator: str, state: str, key: Any, **options: Any) -> Any:
        """Return the value of a key, None if there is none; options as for `get`.

        Raises:
            QueryableStateError: the state cannot be read.
        """
        return self.get(job, operator, state, key, **options).keys[0].value

    def get_many(
        self,
        job: str,
        operator: str,
        state: str,
        keys: Sequence[Any],
        *,
        level: str = COMMITTED,
        checkpoint: int | None = None,
        max_staleness: str | None = None,
        with_expired: bool = False,
    ) -> LookUp:
        """Look up up to 100 keys, all in one checkpoint or after one micro-batch.

        Raises:
            QueryableStateError: the state cannot be read.
        """
        parameters = _level(level, checkpoint, max_staleness, with_expired)
        parameters += [("key", _json(key)) for key in keys]
        return self._get(_path(job, operator, state), parameters, LookUp)

    def page(
        self,
        job: str,
        operator: str,
        state: str,
        *,
        prefix: str | None = None,
        after: str | None = None,
        limit: int = 100,
        level: str = COMMITTED,
        checkpoint: int | None = None,
        max_staleness: str | None = None,
        with_expired: bool = False,
    ) -> Page:
        """Return up to `limit` entries after a cursor; with `prefix` of keys that begin so.

        Raises:
            QueryableStateError: the state cannot be read.
        """
        parameters = _level(level, checkpoint, max_staleness, with_expired)
        parameters += [("prefix", prefix), ("after", after), ("limit", str(limit))]
        return self._get(_path(job, operator, state), parameters, Page)

    def scan(self, job: str, operator: str, state: str, **options: Any) -> Iterator[Entry]:
        """Iterate over all entries, page by page; options as for `page`.

        Each page is read when it is needed, from the checkpoint that is the newest one then: pass
        `checkpoint`, and let the job retain it, to read all pages from one.

        Raises:
            QueryableStateError: the state cannot be read.
        """
        page = self.page(job, operator, state, **options)
        yield from page.entries
        while page.next is not None:
            page = self.page(job, operator, state, **{**options, "after": page.next})
            yield from page.entries

    def known(
        self,
        job: str,
        key: Any,
        *,
        checkpoint: int | None = None,
        max_staleness: str | None = None,
        with_expired: bool = False,
    ) -> Known:
        """Return what all queryable states of a job have of a key, from one checkpoint.

        Raises:
            QueryableStateError: the state cannot be read.
        """
        parameters = _level(COMMITTED, checkpoint, max_staleness, with_expired)
        parameters.append(("key", _json(key)))
        return self._get(_path(job), parameters, Known)

    def states(self, job: str) -> list[Mapping[str, Any]]:
        """Return the operators of a job with their keyed states.

        Raises:
            QueryableStateError: they cannot be read.
        """
        found: dict[str, Any] = self._get(_path(job), [], dict)
        return list(found["operators"])

    def close(self) -> None:
        """Close the connection of this thread."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _get(self, path: str, parameters: Sequence[tuple[str, str | None]], kind: type[A]) -> A:
        given = [("json", "true"), *((n, v) for n, v in parameters if v is not None)]
        body = self._connection.get(f"{path}?{urlencode(given)}")
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as error:
            message = f"The answer of the server cannot be read: {error}"
            raise StateServerError(message) from error


def _path(job: str, *names: str) -> str:
    return "/".join(["/v1/jobs", quote(job, safe=""), "state", *(quote(n, safe="") for n in names)])


def _level(
    level: str, checkpoint: int | None, max_staleness: str | None, with_expired: bool
) -> list[tuple[str, str | None]]:
    return [
        ("level", None if level == COMMITTED else level),
        ("checkpoint", None if checkpoint is None else str(checkpoint)),
        ("max_staleness", max_staleness),
        ("expired", "true" if with_expired else None),
    ]


def _json(key: Any) -> str:
    return msgspec.json.encode(_sent(key)).decode()


def _sent(key: Any) -> Any:
    """Return a key with its bytes as the server takes them."""
    match key:
        case bytes() | bytearray():
            return {"base64": base64.b64encode(key).decode()}
        case list() | tuple():
            return [_sent(item) for item in key]
        case dict():
            return {name: _sent(item) for name, item in key.items()}
    return key
