"""Ids that cross room borders, each a type of its own."""

from __future__ import annotations

import re
from typing import NewType

OperatorUid = NewType("OperatorUid", str)
"""Identity of one operator across runs; state and counters are filed under it."""

StageId = NewType("StageId", int)
"""Position of a stage in its plan, sources first."""

ChannelId = NewType("ChannelId", int)
"""Position of a channel in its plan."""

AttemptId = NewType("AttemptId", str)
"""One life of a job: every name an attempt writes carries it."""

CheckpointId = NewType("CheckpointId", int)
"""Number of a checkpoint or savepoint; never repeats in a job's life."""

JobKey = NewType("JobKey", str)
"""Name of a job's directory: what it is called across runs."""

_ATTEMPT = re.compile(r"a([0-9]+)")


def attempt_number(name: str) -> int | None:
    """Return the number of an attempt, None if this is no attempt's name; later ones are higher."""
    found = _ATTEMPT.fullmatch(name)
    return None if found is None else int(found[1])


def is_no_later(name: str, than: str) -> bool:
    """Whether an attempt is another one or came before it; false for what is no attempt's name.

    A driver that cleans up asks this of every name: it may have been taken over since it looked
    at the journal, and what its successors write is not its to judge.
    """
    number, limit = attempt_number(name), attempt_number(than)
    return number is not None and limit is not None and number <= limit
