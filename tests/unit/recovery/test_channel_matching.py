"""Records in flight go back into the channel they were in, side outputs included."""

from __future__ import annotations

import pytest

from penstock.checkpoint.storage.metadata import ChannelState, CheckpointMetadata, OperatorSnapshot
from penstock.datastream import OutputTag
from penstock.errors import RestoreMismatchError
from penstock.graph.plan import Plan
from penstock.recovery.channel_matching import match_channels
from penstock.types.signature import PICKLED
from tests.unit.support import environment, plan_of

TAG = OutputTag("late")


def program(*, from_side: bool) -> Plan:
    env = environment()
    step = env.from_collection([1]).rebalance().map(lambda n: n).uid("step")
    taken = step.get_side_output(TAG) if from_side else step
    taken.rebalance().map(lambda n: n).uid("behind").print()
    return plan_of(env)


def in_flight(tag: str | None) -> CheckpointMetadata:
    state = ChannelState("step", 0, 0, "rebalance", 1, PICKLED, "a", 0, 1, [], tag)
    operator = OperatorSnapshot("behind", "Map", "map", 1, 128, 1, in_flight=[state])
    return CheckpointMetadata("id", "job", "a", 1, "checkpoint", 0.0, 0.0, "0", [operator])


@pytest.mark.parametrize("from_side", [True, False])
def test_a_channel_of_the_same_output_takes_them_over(from_side: bool) -> None:
    plan = program(from_side=from_side)
    (channel,) = [c for c in plan.channels if plan.stages[c.consumer].head.uid == "behind"]
    metadata = in_flight("late" if from_side else None)
    found = match_channels(plan, metadata, "chk-1", allow_non_restored=False)
    assert set(found) == {channel.id}


def test_records_of_a_side_output_do_not_go_into_a_channel_of_the_main_one() -> None:
    said = "from side output 'late' of 'Map', and that channel comes from the main output"
    with pytest.raises(RestoreMismatchError, match=said):
        match_channels(program(from_side=False), in_flight("late"), "x", allow_non_restored=False)
