"""What the address of a call asks for: keys, a page, a level of isolation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.common.config.option_kinds import NON_NEGATIVE_DURATION
from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call
from penstock.snapshots.queries.query import DEFAULT_ENTRIES, MOST_ENTRIES, MOST_KEYS, StateQuery

_LONGEST_NUMBER = 18
_TRUE, _FALSE = ("true", "1", ""), ("false", "0")
PARAMETERS = (
    "key",
    "map_key",
    "json",
    "prefix",
    "after",
    "limit",
    "expired",
    "level",
    "checkpoint",
    "max_staleness",
)


class Level(StrEnum):
    """The isolation levels of reads."""

    COMMITTED = "committed"
    LATEST = "latest"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class Wanted:
    """How fresh the state has to be, and of which checkpoint."""

    level: Level
    checkpoint: int | None
    max_staleness_s: float | None


def wanted_of(call: Call) -> Wanted:
    """Return the level of isolation that a call asks for.

    Raises:
        RestError: a parameter cannot be used.
    """
    text = call.flag("level") or Level.COMMITTED
    try:
        level = Level(text)
    except ValueError:
        raise RestError(400, f"level={text} is none of committed and latest") from None
    checkpoint = _number(call, "checkpoint", 1)
    if checkpoint is not None:
        if level is Level.LATEST:
            raise RestError(400, "level=latest and checkpoint= exclude each other")
        level = Level.CHECKPOINT
    elif level is Level.CHECKPOINT:
        raise RestError(400, "level=checkpoint needs checkpoint=N")
    longest = call.flag("max_staleness")
    if longest is None:
        return Wanted(level, checkpoint, None)
    try:
        return Wanted(level, checkpoint, NON_NEGATIVE_DURATION.parse(longest).total_seconds())
    except (ValueError, OverflowError):
        expected = NON_NEGATIVE_DURATION.expected
        raise RestError(400, f"max_staleness={longest} is not {expected}") from None


def query_of(call: Call, operator: str, state: str, *, only_queryable: bool) -> StateQuery:
    """Return the query of a call.

    Raises:
        RestError: a parameter cannot be used.
    """
    keys = call.query.get("key", [])
    if len(keys) > MOST_KEYS:
        raise RestError(400, f"At most {MOST_KEYS} keys can be asked for at once")
    map_key, prefix, after = call.flag("map_key"), call.flag("prefix"), call.flag("after")
    if keys and prefix is not None:
        raise RestError(400, "key= and prefix= exclude each other")
    if map_key is not None and not keys:
        raise RestError(400, "map_key= needs key=")
    if after is not None and len(keys) > 1:
        raise RestError(400, "after= takes one key at most")
    limit = _number(call, "limit", 1)
    if limit is not None and limit > MOST_ENTRIES:
        raise RestError(400, f"limit= is {MOST_ENTRIES} at most")
    return StateQuery(
        operator=operator,
        state=state,
        keys=keys,
        map_key=map_key,
        are_json=_truth(call, "json"),
        prefix=prefix,
        after=after,
        limit=limit or (MOST_ENTRIES if keys else DEFAULT_ENTRIES),
        with_expired=_truth(call, "expired"),
        only_queryable=only_queryable,
    )


def _number(call: Call, name: str, least: int) -> int | None:
    text = call.flag(name)
    if text is None:
        return None
    is_number = text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER
    if not is_number or int(text) < least:
        raise RestError(400, f"{name}={text} is no whole number from {least} on")
    return int(text)


def _truth(call: Call, name: str) -> bool:
    text = call.flag(name)
    if text is None or text.lower() in _FALSE:
        return False
    if text.lower() not in _TRUE:
        raise RestError(400, f"{name}={text} is neither true nor false")
    return True
