"""Decides from the options and the snapshot what is read."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.checkpoint.storage.job_dir import JobDir, is_job
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.metadata import OperatorSnapshot
from penstock.errors import (
    IncomparableSnapshotsError,
    NotASnapshotError,
    StateOptionError,
    UnknownCheckpointError,
    UnknownStateError,
)
from penstock.ids import JobKey
from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.operator_state import operator_states
from penstock.snapshots.stored_snapshot import StoredSnapshot
from penstock.spark.state.change_scan import ChangeScan
from penstock.spark.state.keyed_scan import KeyedScan, Shape, keys_of_options
from penstock.spark.state.operator_scan import OperatorFactsScan, OperatorStateScan
from penstock.spark.state.options import (
    CHANGES,
    COMMITTABLES,
    FLATTEN,
    KEY,
    KIND,
    OPERATOR,
    POSITIONS,
    STATE,
    TIMERS,
    ChangeFeed,
    StateKind,
    StateOptions,
    What,
)
from penstock.spark.state.scan import KeptSnapshot, Scan, opened_snapshot
from penstock.spark.state.shapes import KeyedShape, TimerShape
from penstock.state.registry.migration import later_of

_TIMERS_PREFIX = "_timers/"


def plan_scan(options: StateOptions) -> Scan:
    """Return what the options name; the snapshot is pinned for some minutes.

    Raises:
        StateOptionError: an option is missing, or does not fit the snapshot.
        SnapshotError: there is no such snapshot, operator or state.
        CorruptStateError: a file is missing, damaged or another one.
    """
    if options.changes is not None:
        return _changes(options, options.changes)
    snapshot, kept = opened_snapshot(options.path, options.checkpoint)
    if options.what in (What.POSITIONS, What.COMMITTABLES):
        found = None if options.operator is None else snapshot.operator(options.operator)
        return OperatorFactsScan(kept, options.what, found)
    operator = _operator(snapshot, options)
    if options.what is What.TIMERS:
        return _timers(snapshot, kept, operator, options)
    return _state(snapshot, kept, operator, options)


def _state(
    snapshot: StoredSnapshot,
    kept: KeptSnapshot,
    operator: OperatorSnapshot,
    options: StateOptions,
) -> Scan:
    keyed = (
        {s.name: s for s in _keyed(snapshot, operator)} if options.kind.value != "operator" else {}
    )
    others: set[str] = set()
    if options.kind is not StateKind.KEYED:
        others = {state.name for state in operator_states(operator)}
    name = options.state
    if name is None:
        known = sorted(n for n in {*keyed, *others} if not n.startswith(_TIMERS_PREFIX))
        if len(known) != 1:
            message = f"operator {operator.name!r} has the states {', '.join(known) or '(none)'}"
            raise StateOptionError(STATE, f"{message}: name one, or use {TIMERS}")
        name = known[0]
    if name in keyed and name in others:
        reason = f"{name!r} is the name of a keyed and of an operator state: say which"
        raise StateOptionError(KIND, reason)
    if name in others:
        if options.keys is not None or options.unparsed_key is not None:
            raise StateOptionError(KEY, f"operator state {name!r} has no keys")
        return OperatorStateScan(kept, operator, name, options.may_unpickle)
    if name not in keyed or keyed[name].are_timers:
        raise UnknownStateError(operator.name, name, tuple(sorted({*keyed, *others})))
    state = keyed[name]
    return KeyedScan(
        snapshot,
        kept,
        operator,
        (_shape(state, options),),
        keys_of_options(options, state),
        options.min_partitions,
    )


def _timers(
    snapshot: StoredSnapshot,
    kept: KeptSnapshot,
    operator: OperatorSnapshot,
    options: StateOptions,
) -> Scan:
    states = _keyed(snapshot, operator)
    windows = (
        {s.info.windows for s in states if s.info.windows} if operator.kind == "window" else set()
    )
    shapes: tuple[Shape, ...] = tuple(
        TimerShape(
            state,
            state.name.removeprefix(_TIMERS_PREFIX),
            windows.copy().pop() if len(windows) == 1 else "",
        )
        for state in states
        if state.are_timers
    )
    if not shapes:
        raise StateOptionError(TIMERS, f"operator {operator.name!r} has no timers")
    keys = keys_of_options(options, shapes[0].state)
    return KeyedScan(snapshot, kept, operator, shapes, keys, options.min_partitions)


def _changes(options: StateOptions, feed: ChangeFeed) -> Scan:
    opened = _retained(options, feed)
    snapshots = [snapshot for snapshot, _ in opened]
    operators = tuple(_operator(snapshot, options) for snapshot in snapshots)
    first, last = snapshots[0], snapshots[-1]
    for one in operators:
        for what, old, new in (
            ("max parallelism", one.max_parallelism, operators[-1].max_parallelism),
            ("key type", one.key_type or "none", operators[-1].key_type or "none"),
        ):
            if old != new:
                raise IncomparableSnapshotsError(
                    str(first.directory), str(last.directory), one.name, what, str(old), str(new)
                )
    state: KeyedState | None = None
    for snapshot, operator in zip(snapshots, operators, strict=True):
        found = _changing(snapshot, operator, options, required=snapshot is last)
        state = found if state is None or found is None else _later(state, found, first, last)
    assert state is not None
    if state.is_map and not options.flatten:
        reason = f"the entries of map state {state.name!r} change one by one: it needs {FLATTEN}"
        raise StateOptionError(CHANGES, reason)
    return ChangeScan(
        tuple(snapshots), tuple(kept for _, kept in opened), operators, _shape(state, options)
    )


def _changing(
    snapshot: StoredSnapshot, operator: OperatorSnapshot, options: StateOptions, *, required: bool
) -> KeyedState | None:
    states = {s.name: s for s in _keyed(snapshot, operator) if not s.are_timers}
    if options.state is None and len(states) == 1:
        return next(iter(states.values()))
    if options.state is None and required:
        message = f"operator {operator.name!r} has the states {', '.join(states)}: name one"
        raise StateOptionError(STATE, message)
    if options.state not in states and required:
        raise UnknownStateError(operator.name, str(options.state), tuple(states))
    return states.get(options.state or "")


def _later(
    old: KeyedState, new: KeyedState, first: StoredSnapshot, last: StoredSnapshot
) -> KeyedState:
    """Return the state with the newer of two types."""
    if later_of(old.info, new.info) is None:
        places = str(first.directory), str(last.directory)
        types = str(old.info), str(new.info)
        raise IncomparableSnapshotsError(*places, new.operator, f"type of {new.name!r}", *types)
    return new


def _retained(options: StateOptions, feed: ChangeFeed) -> list[tuple[StoredSnapshot, KeptSnapshot]]:
    """Open the completed checkpoints of a job from the first to the last one of a feed."""
    place = options.path
    job = JobDir(place.parent, JobKey(place.name))
    if not is_job(job):
        if feed.end is None:
            raise StateOptionError(CHANGES, f"{place} is no job")
        raise NotASnapshotError(str(place))
    state = Journal(job.storage, job.key).state()
    # Those of one history: not what the job has abandoned, nor savepoints, which users move.
    known = tuple(entry.checkpoint for entry in state.restorable if not entry.savepoint)
    end = feed.end if feed.end is not None else max(known, default=feed.start)
    for wanted in (feed.start, end):
        if wanted not in known:
            raise UnknownCheckpointError(job.key, wanted, known)
    if feed.start == end:
        raise StateOptionError(CHANGES, f"there is no checkpoint after {feed.start} yet")
    return [opened_snapshot(place, n) for n in sorted(known) if feed.start <= n <= end]


def _operator(snapshot: StoredSnapshot, options: StateOptions) -> OperatorSnapshot:
    if options.operator is not None:
        return snapshot.operator(options.operator)
    with_state: Sequence[OperatorSnapshot] = snapshot.keyed_operators
    if options.what is What.STATE and options.kind is not StateKind.KEYED:
        with_state = [o for o in snapshot.metadata.operators if o in with_state or o.operator_state]
    if len(with_state) != 1:
        known = ", ".join(f"{o.uid} ({o.name})" for o in with_state) or "(none)"
        more = f"; or use {POSITIONS} or {COMMITTABLES}"
        raise StateOptionError(OPERATOR, f"name one of the operators with state: {known}{more}")
    return with_state[0]


def _keyed(snapshot: StoredSnapshot, operator: OperatorSnapshot) -> list[KeyedState]:
    return snapshot.keyed_states(operator) if operator.keyed or operator.savepoint else []


def _shape(state: KeyedState, options: StateOptions) -> KeyedShape:
    return KeyedShape(state, options.flatten, options.may_unpickle, options.with_key_bytes)
