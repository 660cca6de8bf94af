"""Event time after a source was set to other positions: what is downstream starts from new.

A watermark from before would make late what the source reads again. A snapshot does not know the
job's graph, only the inputs of the first operator of each chain. So whatever is not known to have
other sources only counts as downstream.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.checkpoint.storage.metadata import OperatorSnapshot, OperatorTime


def after_positions_of(sources: Collection[str], operators: Sequence[OperatorSnapshot]) -> set[str]:
    """Return the uids of sources that were set, and of all that may be downstream of them."""
    if not sources:
        return set()
    known = {operator.uid: operator for operator in operators}
    others = {o.uid for o in operators if o.source is not None and o.uid not in sources}
    # Inputs that have ended are not stored: then any operator may have had the source as one.
    is_stored = all(uid in known and not _has_ended(known[uid]) for uid in sources)
    independent = set(known) - set(sources) if is_stored else others
    while True:
        wrong = {
            uid
            for uid in independent - others
            if not (inputs := known[uid].time.inputs)
            or any(one.producer not in independent for one in inputs)
        }
        if not wrong:
            return (set(known) | set(sources)) - independent
        independent -= wrong


def _has_ended(operator: OperatorSnapshot) -> bool:
    return operator.ended or (operator.source is not None and operator.source.finished)


def without_watermarks(time: OperatorTime) -> OperatorTime:
    """Return the time of an operator at the beginning of event time; its timers stay."""
    return OperatorTime(
        next_event_timer=time.next_event_timer, next_processing_timer=time.next_processing_timer
    )
