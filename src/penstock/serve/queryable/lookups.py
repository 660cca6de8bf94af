"""Reads state at one level of isolation; every answer names level, checkpoint and age."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from anyio import CapacityLimiter

from penstock.checkpoint.storage.metadata import OperatorSnapshot
from penstock.errors import (
    DisappearedSnapshotError,
    KeyNotOfTypeError,
    PenstockError,
    StaleStateError,
    UnknownOperatorError,
)
from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call
from penstock.serve.jobs.hex_ids import hex_id
from penstock.serve.queryable.job_reader import JobReader
from penstock.serve.queryable.latest import MOST_AT_ONCE, LatestStates
from penstock.serve.queryable.open_checkpoint import OpenCheckpoint
from penstock.serve.queryable.parameters import Level, Wanted, query_of, wanted_of
from penstock.serve.queryable.readers import StateReaders
from penstock.serve.queryable.statuses import rest_error
from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.queries.operator_queries import OperatorQueries
from penstock.snapshots.queries.query import StateAnswer

_TRIES = 5
_THREADS = 16 + MOST_AT_ONCE
_FEW_KEYS = 10
"""So many are looked up in the event loop: that takes less time than handing them to a thread.

Only in states with one small entry per key.
"""
_NOTHING_QUERYABLE = (
    "No state of this job is queryable: let its program call set_queryable() on the descriptor of "
    "one, or set penstock.queryable-state.enabled"
)

T = TypeVar("T")


class StateLookups:
    """What the server knows of state; any thread may call."""

    def __init__(self, readers: StateReaders, latest: LatestStates) -> None:
        self._readers = readers
        self._latest = latest
        self._threads: CapacityLimiter | None = None

    def threads(self) -> CapacityLimiter:
        """Return what limits the threads that wait for files and drivers; in the event loop."""
        if self._threads is None:
            self._threads = CapacityLimiter(_THREADS)
        return self._threads

    def close(self) -> None:
        """Close everything that is open."""
        self._readers.close()

    def at_once(self, call: Call) -> dict[str, Any] | None:
        """Return the entries of a few keys if that needs no waiting, else None.

        Raises:
            RestError: the call cannot be answered.
        """
        wanted = wanted_of(call)
        keys = len(call.query.get("key", ()))
        if wanted.level is not Level.COMMITTED or not 0 < keys <= _FEW_KEYS:
            return None
        reader = self._readers.known(call.path["jobid"])
        used = None if reader is None else reader.ready()
        if reader is None or used is None:
            return None
        try:
            queries = used.ready(call.path["operator"], time.monotonic())
            if queries is None or _is_stale(used, wanted):
                return None
            if not queries.state(call.path["state"], only_queryable=False).has_one_entry:
                return None
            return self._entries(call, wanted, reader, used, queries)
        except PenstockError as error:
            raise rest_error(error) from None
        finally:
            used.release()

    def entries(self, call: Call) -> dict[str, Any]:
        """Return the entries of keys, or a page of a state.

        Raises:
            RestError: the call cannot be answered.
        """
        wanted = wanted_of(call)
        reader = self._readers.of(call.path["jobid"])
        if wanted.level is Level.LATEST:
            return self._latest_entries(call, wanted, reader)

        def read(used: OpenCheckpoint) -> dict[str, Any]:
            operator = _operator(used, call.path["operator"])
            return self._entries(call, wanted, reader, used, reader.open(used, operator.uid))

        return self._reading(reader, wanted, read)

    def known_of(self, call: Call) -> dict[str, Any]:
        """Return what all queryable states have of a key, from one checkpoint.

        Raises:
            RestError: the call cannot be answered.
        """
        wanted = _of_checkpoint(call)
        reader = self._readers.of(call.path["jobid"])

        def read(used: OpenCheckpoint) -> dict[str, Any]:
            found: list[StateAnswer] = []
            is_any = False
            for operator in used.snapshot.keyed_operators:
                queries = reader.open(used, operator.uid)
                for state in queries.states:
                    if not (reader.has_opted_in or state.info.queryable):
                        continue
                    is_any = True
                    query = query_of(call, operator.uid, state.name, only_queryable=False)
                    try:
                        answer = queries.answer(query, time.time())
                    except KeyNotOfTypeError:
                        continue
                    if any(key.entries for key in answer.keys or ()):
                        found.append(answer)
            if not is_any:
                raise RestError(403, _NOTHING_QUERYABLE)
            return {**_header(wanted, reader, used), "states": list(map(_shown, found))}

        return self._reading(reader, wanted, read)

    def names(self, call: Call) -> dict[str, Any]:
        """Return the operators with keyed state, and their states.

        Raises:
            RestError: the call cannot be answered.
        """
        wanted = _of_checkpoint(call)
        reader = self._readers.of(call.path["jobid"])

        def read(used: OpenCheckpoint) -> dict[str, Any]:
            operators = used.snapshot.keyed_operators
            if (name := call.path.get("operator")) is not None:
                operators = [_operator(used, name)]
            found = [
                _named(operator, reader.open(used, operator.uid).states, reader.has_opted_in)
                for operator in operators
            ]
            return {**_header(wanted, reader, used), "operators": found}

        return self._reading(reader, wanted, read)

    def _reading(self, reader: JobReader, wanted: Wanted, read: Callable[[OpenCheckpoint], T]) -> T:
        try:
            for attempt in range(_TRIES):
                try:
                    with reader.using(wanted.checkpoint) as used:
                        if _is_stale(used, wanted) and wanted.checkpoint is None:
                            reader.refresh()
                        else:
                            _check_age(used, wanted)
                            return read(used)
                    with reader.using() as used:
                        _check_age(used, wanted)
                        return read(used)
                except DisappearedSnapshotError:
                    # Newer ones have subsumed it before the operator was opened.
                    reader.look_again()
                    if attempt == _TRIES - 1:
                        raise
            raise AssertionError
        except PenstockError as error:
            raise rest_error(error) from None

    def _entries(
        self,
        call: Call,
        wanted: Wanted,
        reader: JobReader,
        used: OpenCheckpoint,
        queries: OperatorQueries,
    ) -> dict[str, Any]:
        only_queryable = not reader.has_opted_in
        query = query_of(
            call, call.path["operator"], call.path["state"], only_queryable=only_queryable
        )
        answer = queries.answer(query, time.time())
        return {**_header(wanted, reader, used), **_shown(answer)}

    def _latest_entries(self, call: Call, wanted: Wanted, reader: JobReader) -> dict[str, Any]:
        only_queryable = not reader.reads_all()
        query = query_of(
            call, call.path["operator"], call.path["state"], only_queryable=only_queryable
        )
        found = self._latest.read(reader.job, query)
        assert found.answer is not None
        age_s = max(0.0, time.time() - found.read)
        if wanted.max_staleness_s is not None and age_s > wanted.max_staleness_s:
            raise rest_error(StaleStateError(age_s, wanted.max_staleness_s))
        return {
            "job": reader.job.key,
            "level": Level.LATEST.value,
            "checkpoint": found.checkpoint,
            "micro_batch": found.batch,
            "time": int(found.read * 1000),
            "age": int(age_s * 1000),
            **_shown(found.answer),
        }


def _of_checkpoint(call: Call) -> Wanted:
    wanted = wanted_of(call)
    if wanted.level is Level.LATEST:
        raise RestError(400, "level=latest needs an operator and a state in the path")
    return wanted


def _operator(used: OpenCheckpoint, name: str) -> OperatorSnapshot:
    """Return an operator by its uid, its name, or the hash of its uid that Flink's clients have."""
    try:
        return used.snapshot.operator(name)
    except UnknownOperatorError:
        for operator in used.snapshot.metadata.operators:
            if hex_id(operator.uid) == name:
                return operator
        raise


def _age_s(used: OpenCheckpoint) -> float:
    """Return how old the state is: whatever was processed before the trigger is in it."""
    return max(0.0, time.time() - used.snapshot.metadata.triggered)


def _is_stale(used: OpenCheckpoint, wanted: Wanted) -> bool:
    return wanted.max_staleness_s is not None and _age_s(used) > wanted.max_staleness_s


def _check_age(used: OpenCheckpoint, wanted: Wanted) -> None:
    if wanted.max_staleness_s is not None and (age_s := _age_s(used)) > wanted.max_staleness_s:
        raise StaleStateError(age_s, wanted.max_staleness_s)


def _header(wanted: Wanted, reader: JobReader, used: OpenCheckpoint) -> dict[str, Any]:
    return {
        "job": reader.job.key,
        "level": wanted.level.value,
        "checkpoint": used.number,
        "sinks_committed": used.is_committed,
        "time": int(used.snapshot.metadata.triggered * 1000),
        "age": int(_age_s(used) * 1000),
    }


def _shown(answer: StateAnswer) -> dict[str, Any]:
    fields = msgspec.structs.asdict(answer)
    return {
        name: value
        for name, value in fields.items()
        if value is not None or (name == "next" and answer.keys is None)
    }


def _named(
    operator: OperatorSnapshot, states: list[KeyedState], has_opted_in: bool
) -> dict[str, Any]:
    return {
        "uid": operator.uid,
        "name": operator.name,
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism,
        "key_type": operator.key_type,
        "states": [
            {
                "name": state.name,
                "kind": state.kind,
                "type": state.info.type,
                "queryable": has_opted_in or bool(state.info.queryable),
                "queryable_name": state.info.queryable,
                "windows": state.info.windows,
                "ttl": -1 if state.info.ttl is None else state.info.ttl.millis,
            }
            for state in states
        ],
    }
