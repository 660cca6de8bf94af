"""The options of `penstock.state` and `penstock.state-metadata`, parsed and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec

from penstock.common.config.known_options import STORAGE_PREFIX
from penstock.common.config.locations import parse_location
from penstock.common.storage_url import Location
from penstock.errors import StateOptionError

PATH = "path"
CHECKPOINT = "checkpointId"
BATCH = "batchId"
OPERATOR = "operatorUid"
OPERATOR_NAME = "operatorName"
STATE = "stateVarName"
KIND = "stateKind"
TIMERS = "readRegisteredTimers"
POSITIONS = "readSourcePositions"
COMMITTABLES = "readPendingCommittables"
FLATTEN = "flattenCollectionTypes"
CHANGES = "readChangeFeed"
CHANGE_START = "changeStartCheckpointId"
CHANGE_START_BATCH = "changeStartBatchId"
CHANGE_END = "changeEndCheckpointId"
CHANGE_END_BATCH = "changeEndBatchId"
KEY = "key"
KEYS = "keys"
PARTITIONS = "minPartitions"
PICKLE = "allowPickle"
KEY_BYTES = "includeKeyBytes"

METADATA_OPTIONS = (PATH, CHECKPOINT, BATCH)
_KNOWN = (
    *METADATA_OPTIONS,
    OPERATOR,
    OPERATOR_NAME,
    STATE,
    KIND,
    TIMERS,
    POSITIONS,
    COMMITTABLES,
    FLATTEN,
    CHANGES,
    CHANGE_START,
    CHANGE_START_BATCH,
    CHANGE_END,
    CHANGE_END_BATCH,
    KEY,
    KEYS,
    PARTITIONS,
    PICKLE,
    KEY_BYTES,
)
_NOT_HERE = {
    "operatorid": "operators have no positions here: name one with operatorUid",
    "storename": "name the state with stateVarName",
    "joinside": "name the state of that side with stateVarName",
    "snapshotstartbatchid": "a checkpoint is read as it is: choose one with checkpointId",
    "snapshotpartitionid": "filter by partition_id or key_group",
}
"""Options of Spark's `statestore` that have another name or no meaning here."""


class What(Enum):
    """What is read."""

    STATE = "state"
    TIMERS = TIMERS
    POSITIONS = POSITIONS
    COMMITTABLES = COMMITTABLES


class StateKind(Enum):
    """Which states a name is looked for in."""

    ANY = ""
    KEYED = "keyed"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class ChangeFeed:
    """The checkpoints between which changes are read."""

    start: int
    end: int | None


@dataclass(frozen=True, slots=True)
class StateOptions:
    """What to read, and how."""

    path: Location
    checkpoint: int | None
    operator: str | None = None
    what: What = What.STATE
    state: str | None = None
    kind: StateKind = StateKind.ANY
    flatten: bool = True
    keys: tuple[Any, ...] | None = None
    """As they came from JSON; a text may also be a key that is no JSON."""
    changes: ChangeFeed | None = None
    min_partitions: int = 1
    may_unpickle: bool = False
    with_key_bytes: bool = False
    unparsed_key: str | None = field(default=None)
    """The text of option `key`, which is read by the type of the keys."""


def parse_options(given: Mapping[str, str], known: tuple[str, ...] = _KNOWN) -> StateOptions:
    """Return the options of a read; their names are case-insensitive.

    Raises:
        StateOptionError: one is unknown, has a bad value, or conflicts with another one.
    """
    return _Parser(given, known).parsed()


class _Parser:
    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        names = {name.lower(): name for name in known}
        self._options: dict[str, str] = {}
        self._storage: dict[str, str] = {}
        for key, value in given.items():
            lower = key.lower()
            if lower.startswith(STORAGE_PREFIX):
                self._storage[key[len(STORAGE_PREFIX) :]] = value
            elif lower in _NOT_HERE:
                raise StateOptionError(key, _NOT_HERE[lower])
            elif lower not in names:
                raise StateOptionError(key, f"unknown; there are: {', '.join(known)}")
            else:
                self._options[names[lower]] = value

    def parsed(self) -> StateOptions:
        what = self._what()
        changes = self._changes()
        self._check_conflicts(what)
        keys = self._json_list(KEYS)
        return StateOptions(
            path=self._path(),
            checkpoint=self._number(self._one_of(CHECKPOINT, BATCH)),
            operator=self._options.get(self._one_of(OPERATOR, OPERATOR_NAME)),
            what=what,
            state=self._options.get(STATE),
            kind=self._kind(),
            flatten=self._flag(FLATTEN, default=True),
            keys=None if keys is None else tuple(keys),
            changes=changes,
            min_partitions=self._number(PARTITIONS) or 1,
            may_unpickle=self._flag(PICKLE),
            with_key_bytes=self._flag(KEY_BYTES),
            unparsed_key=self._options.get(KEY),
        )

    def _path(self) -> Location:
        text = self._options.get(PATH)
        if text is None:
            raise StateOptionError(PATH, "give the path of a checkpoint, a savepoint or a job")
        try:
            return parse_location(text, self._storage)
        except ValueError:
            reason = f"{text!r} is no path, and no URL of a store that is supported"
            raise StateOptionError(PATH, reason) from None

    def _what(self) -> What:
        chosen = [name for name in (TIMERS, POSITIONS, COMMITTABLES) if self._flag(name)]
        if self._options.get(STATE) is not None:
            chosen.insert(0, STATE)
        if len(chosen) > 1:
            raise _conflict(chosen[0], chosen[1])
        return What.STATE if not chosen or chosen == [STATE] else What(chosen[0])

    def _kind(self) -> StateKind:
        text = self._options.get(KIND, "").lower()
        try:
            return StateKind(text)
        except ValueError:
            raise StateOptionError(KIND, f"{text!r} is neither keyed nor operator") from None

    def _changes(self) -> ChangeFeed | None:
        start = self._one_of(CHANGE_START, CHANGE_START_BATCH)
        end = self._one_of(CHANGE_END, CHANGE_END_BATCH)
        if not self._flag(CHANGES):
            for name in (start, end):
                if name in self._options:
                    raise StateOptionError(name, f"it needs {CHANGES}")
            return None
        for name in (CHECKPOINT, BATCH, KEY, KEYS, TIMERS, POSITIONS, COMMITTABLES):
            if name in self._options:
                raise _conflict(CHANGES, name)
        first, last = self._number(start), self._number(end)
        if first is None:
            raise StateOptionError(CHANGES, f"it needs {CHANGE_START}")
        if last is not None and last < first:
            raise StateOptionError(end, f"checkpoint {last} is before {start} {first}")
        return ChangeFeed(first, last)

    def _check_conflicts(self, what: What) -> None:
        if KEY in self._options and KEYS in self._options:
            raise _conflict(KEY, KEYS)
        if what in (What.POSITIONS, What.COMMITTABLES):
            for name in (KEY, KEYS, KIND, FLATTEN, KEY_BYTES, PICKLE):
                if name in self._options:
                    raise _conflict(what.value, name)
        if what is What.TIMERS and KIND in self._options:
            raise _conflict(TIMERS, KIND)

    def _one_of(self, name: str, alias: str) -> str:
        """Return the one of two names that is given; the first if none is."""
        if name in self._options and alias in self._options:
            raise _conflict(name, alias)
        return alias if alias in self._options else name

    def _number(self, name: str) -> int | None:
        text = self._options.get(name)
        if text is None:
            return None
        if not text.strip().isdecimal():
            raise StateOptionError(name, f"{text!r} is no number")
        return int(text)

    def _flag(self, name: str, *, default: bool = False) -> bool:
        text = self._options.get(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise StateOptionError(name, f"{text!r} is neither true nor false")
        return text.lower() == "true"

    def _json_list(self, name: str) -> list[Any] | None:
        text = self._options.get(name)
        if text is None:
            return None
        try:
            found = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise StateOptionError(name, f"it is no JSON: {error}") from None
        if not isinstance(found, list):
            raise StateOptionError(name, "it is no list: use key for a single key")
        return found


def _conflict(one: str, other: str) -> StateOptionError:
    return StateOptionError(one, f"it cannot be combined with {other}")
