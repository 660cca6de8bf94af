"""Which operators start with new watermarks after a source was set to other positions."""

from __future__ import annotations

from penstock.checkpoint.storage.metadata import (
    InputWatermarkStatus,
    OperatorSnapshot,
    OperatorTime,
    SourceState,
)
from penstock.common.event_time import MIN_WATERMARK
from penstock.snapshots.writing.reset_watermarks import after_positions_of, without_watermarks


def operator(
    uid: str, *producers: str, source: bool = False, ended: bool = False
) -> OperatorSnapshot:
    inputs = [InputWatermarkStatus(producer, 0, 0, 5, False) for producer in producers]
    return OperatorSnapshot(
        uid, uid, "map", 1, 128, 1,
        source=SourceState({"0": 1}, finished=False, enumerator_state=b"") if source else None,
        ended=ended,
        time=OperatorTime(watermark=5, inputs=inputs),
    )  # fmt: skip


def reset(sources: set[str], *operators: OperatorSnapshot) -> str:
    return "".join(sorted(after_positions_of(sources, operators)))


def test_all_that_is_downstream_of_the_source_is_reset_and_no_other_branch() -> None:
    a, b = operator("a", source=True), operator("b", source=True)
    steps = operator("c", "a"), operator("d", "b"), operator("e", "c", "d"), operator("f", "d")
    assert reset({"a"}, a, b, *steps) == "ace"
    assert reset({"b"}, a, b, *steps) == "bdef"
    assert reset({"a", "b"}, a, b, *steps) == "abcdef"
    assert reset(set(), a, b, *steps) == ""


def test_what_may_be_downstream_is_reset() -> None:
    a, b = operator("a", source=True), operator("b", source=True)
    # c is in the chain of one of the sources, so d is downstream of either.
    assert reset({"a"}, a, b, operator("c"), operator("d", "c")) == "acd"
    assert reset({"a"}, a, b, operator("d", "removed")) == "ad"
    assert reset({"new"}, a, b, operator("d", "b")) == "dnew"


def test_inputs_that_have_ended_are_not_known() -> None:
    b = operator("b", source=True)
    ended = operator("a", source=True, ended=True)
    assert reset({"a"}, ended, b, operator("d", "b")) == "ad"


def test_timers_are_due_when_they_were() -> None:
    time = OperatorTime(7, 8, 9, 10, {"0": 11}, ["0"], inputs=[])
    assert without_watermarks(time) == OperatorTime(MIN_WATERMARK, 8, 9)
