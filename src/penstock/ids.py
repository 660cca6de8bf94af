"""Ids that cross room borders, each a type of its own."""

from __future__ import annotations

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
