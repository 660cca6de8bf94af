"""How much of the output in a snapshot is recorded as committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.checkpoint.storage.metadata import CommittableState, OperatorSnapshot


@dataclass(frozen=True, slots=True)
class CommittedOutput:
    """Up to which checkpoint id sinks have committed what a snapshot holds, 0 if unknown."""

    upto: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Lower ids, by uid: of sinks that a program left out when the others committed."""

    def upto_of(self, uid: str) -> int:
        """Return the id up to which the output of a sink is committed."""
        return min(self.upto, self.left_out.get(uid, self.upto))

    def pending(self, operator: OperatorSnapshot) -> list[CommittableState]:
        """Return the committables of an operator that may not be committed yet."""
        committables = [] if operator.sink is None else operator.sink.committables
        return [c for c in committables if c.checkpoint > self.upto_of(operator.uid)]

    def merged(self, other: CommittedOutput) -> CommittedOutput:
        """Return what one of two records says."""
        uids = {*self.left_out, *other.left_out}
        upto = max(self.upto, other.upto)
        each = {uid: max(self.upto_of(uid), other.upto_of(uid)) for uid in uids}
        return CommittedOutput(upto, {uid: n for uid, n in each.items() if n < upto})
