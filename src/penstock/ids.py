"""Types of the ids that are used across packages."""

from __future__ import annotations

import re
from typing import NewType

OperatorUid = NewType("OperatorUid", str)
"""Identity of an operator across runs; state and counters are stored under it."""

StageId = NewType("StageId", int)
"""Position of a stage in its plan, sources first."""

ChannelId = NewType("ChannelId", int)
"""Position of a channel in its plan."""

AttemptId = NewType("AttemptId", str)
"""One attempt to run a job; part of every name that the attempt writes.

A micro-batch has tries, and a try has Spark's task attempts: neither is an attempt of the job.
"""

CheckpointId = NewType("CheckpointId", int)
"""Number of a checkpoint or savepoint; never used twice by a job."""

JobKey = NewType("JobKey", str)
"""The id of a job, set by the user or derived from its name; names its directory."""

_ATTEMPT = re.compile(r"a([0-9]+)")


def attempt_number(name: str) -> int | None:
    """Return the number of an attempt, higher for later ones; None if it is not an attempt."""
    found = _ATTEMPT.fullmatch(name)
    return None if found is None else int(found[1])


def is_no_later(name: str, than: str) -> bool:
    """Whether ``name`` is an attempt that is ``than`` or an earlier one.

    A driver that cleans up checks every name with this: another driver may have taken over since
    it read the journal, and it must not delete what later attempts write.
    """
    number, limit = attempt_number(name), attempt_number(than)
    return number is not None and limit is not None and number <= limit
