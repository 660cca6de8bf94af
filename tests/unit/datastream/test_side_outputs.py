"""What functions yield beside their main output, from every kind of step and by every way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.contracts.sink import WriterContext
from penstock.datastream import (
    BroadcastProcessFunction,
    CoProcessFunction,
    DataStream,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.errors import InvalidJobError, StepError, UserFunctionError
from penstock.graph.render import render_json, render_mermaid, render_text
from tests.unit.support import collected, environment, plan_of

NUMBERS = list(range(10))
ODD = OutputTag("odd", Types.LONG())
RULES = MapStateDescriptor("rules", Types.STRING(), Types.STRING())


def split(value: int) -> Iterable[Any]:
    if value % 2:
        yield ODD, value
    else:
        yield value


class Split(ProcessFunction[int, int]):
    def process_element(self, value: int, ctx: Any) -> Iterable[Any]:
        return split(value)


class KeyedSplit(KeyedProcessFunction[int, int, int]):
    def process_element(self, value: int, ctx: Any) -> Iterable[Any]:
        return split(value)


class CoSplit(CoProcessFunction[int, int, int]):
    def process_element1(self, value: int, ctx: Any) -> Iterable[Any]:
        return split(value)

    process_element2 = process_element1


class KeyedCoSplit(KeyedCoProcessFunction[int, int, int, int]):
    def process_element1(self, value: int, ctx: Any) -> Iterable[Any]:
        return split(value)

    process_element2 = process_element1


class BroadcastSplit(BroadcastProcessFunction[int, int, int]):
    def process_element(self, value: int, ctx: Any) -> Iterable[Any]:
        return split(value)

    def process_broadcast_element(self, value: int, ctx: Any) -> Iterable[Any]:
        return split(value)


class KeyedBroadcastSplit(KeyedBroadcastProcessFunction[int, int, int, int]):
    def process_element(self, value: int, ctx: Any) -> Iterable[Any]:
        return split(value)

    def process_broadcast_element(self, value: int, ctx: Any) -> Iterable[Any]:
        return split(value)


def numbers(env: StreamExecutionEnvironment, start: int = 0) -> DataStream:
    return env.from_collection([start + n for n in NUMBERS], Types.LONG())


def itself(value: int) -> int:
    return value


def keyed_by_itself(env: StreamExecutionEnvironment, start: int = 0) -> Any:
    return numbers(env, start).key_by(itself, Types.LONG())


STEPS: dict[str, Callable[[StreamExecutionEnvironment], DataStream]] = {
    "flat_map": lambda e: numbers(e).flat_map(split, Types.LONG()),
    "keyed flat_map": lambda e: keyed_by_itself(e).flat_map(split, Types.LONG()),
    "map": lambda e: numbers(e).map(lambda n: next(iter(split(n))), Types.LONG()),
    "process": lambda e: numbers(e).process(Split(), Types.LONG()),
    "keyed process": lambda e: keyed_by_itself(e).process(KeyedSplit(), Types.LONG()),
}

STEPS_OF_TWO: dict[str, Callable[[StreamExecutionEnvironment], DataStream]] = {
    "co-process": lambda e: numbers(e).connect(numbers(e, 10)).process(CoSplit(), Types.LONG()),
    "keyed co-process": lambda e: (
        keyed_by_itself(e).connect(keyed_by_itself(e, 10)).process(KeyedCoSplit(), Types.LONG())
    ),
    "broadcast": lambda e: (
        numbers(e).connect(numbers(e, 10).broadcast(RULES)).process(BroadcastSplit(), Types.LONG())
    ),
    "keyed broadcast": lambda e: (
        keyed_by_itself(e)
        .connect(numbers(e, 10).broadcast(RULES))
        .process(KeyedBroadcastSplit(), Types.LONG())
    ),
}


def both(step: DataStream, tag: OutputTag = ODD) -> list[Any]:
    """Run the program and return all records of a step, each with the output it came from."""
    main = step.map(lambda v: ("main", v))
    side = step.get_side_output(tag).map(lambda v: ("side", v))
    return sorted(collected(main.union(side)), key=repr)


def expected(numbers: Iterable[int]) -> list[Any]:
    return sorted((("side" if n % 2 else "main", n) for n in numbers), key=repr)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_every_step_of_one_input_has_side_outputs(step: Callable[..., DataStream]) -> None:
    assert both(step(environment())) == expected(range(10))


@pytest.mark.parametrize("step", STEPS_OF_TWO.values(), ids=STEPS_OF_TWO.keys())
def test_every_step_of_two_inputs_has_side_outputs_on_both(
    step: Callable[..., DataStream],
) -> None:
    assert both(step(environment())) == expected(range(20))


def test_a_side_output_can_be_keyed_with_state_after_it() -> None:
    class Count(KeyedProcessFunction[int, int, Any]):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

        def process_element(self, value: int, ctx: Any) -> Iterable[Any]:
            self.seen.update((self.seen.value() or 0) + 1)
            yield ctx.get_current_key(), self.seen.value()

    env = environment(parallelism=2)
    odd = numbers(env).process(Split(), Types.LONG()).get_side_output(ODD)
    counted = odd.key_by(lambda n: n % 3, Types.LONG()).process(Count())
    assert sorted(collected(counted)) == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1)]


def test_a_side_output_of_a_keyed_step_can_be_rebalanced_to_more_subtasks() -> None:
    env = environment(parallelism=2)
    step = keyed_by_itself(env).process(KeyedSplit(), Types.LONG())
    odd = step.get_side_output(ODD).rebalance().map(itself).set_parallelism(3)
    assert sorted(collected(odd)) == [1, 3, 5, 7, 9]


def test_a_side_output_can_have_several_takers_and_be_taken_alone() -> None:
    env = environment()
    step = numbers(env).process(Split())
    once, twice = step.get_side_output(ODD), step.get_side_output(OutputTag("odd", Types.LONG()))
    assert sorted(collected(once.union(twice))) == sorted([1, 3, 5, 7, 9] * 2)


def test_several_side_outputs_have_types_of_their_own() -> None:
    texts, rows = OutputTag("texts", Types.STRING()), OutputTag("rows", [Types.LONG()])

    def parts(value: int) -> Iterable[Any]:
        yield value
        yield texts, str(value)
        yield rows, (value,)

    env = environment()
    step = numbers(env).flat_map(parts, Types.LONG())
    assert step.get_side_output(texts).get_type() == Types.STRING()
    assert step.get_side_output(rows).get_type() == Types.ROW([Types.LONG()])
    text = step.get_side_output(texts).rebalance().map(lambda t: t)
    row = step.get_side_output(rows).rebalance().map(lambda r: str(tuple(r)))
    found = sorted(collected(text.union(row)))
    assert found == sorted([str(n) for n in NUMBERS] + [f"({n},)" for n in NUMBERS])


class Seconds(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value * 1000


class Stamped(ProcessFunction[int, Any]):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value, ctx.timestamp()


@pytest.mark.parametrize("dealt_out", [False, True], ids=["chained", "behind an exchange"])
def test_records_of_a_side_output_keep_their_event_time(dealt_out: bool) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Seconds())
    timed = numbers(environment()).assign_timestamps_and_watermarks(strategy)
    odd = timed.process(Split(), Types.LONG()).get_side_output(ODD)
    stamped = (odd.rebalance() if dealt_out else odd).process(Stamped())
    assert collected(stamped) == [(n, n * 1000) for n in (1, 3, 5, 7, 9)]


def test_a_record_that_is_not_of_the_tags_type_is_named() -> None:
    texts = OutputTag("texts", Types.STRING())

    def wrong(value: int) -> Iterable[Any]:
        yield texts, value

    side = numbers(environment()).flat_map(wrong).get_side_output(texts)
    with pytest.raises(StepError, match="FlatMap"):
        collected(side.rebalance().map(lambda v: v))


def test_an_unused_side_output_is_an_error_if_others_are_used() -> None:
    other = OutputTag("other")
    step = numbers(environment()).process(Split())
    with pytest.raises(StepError, match=r"side output 'odd' .*is not read .read: 'other'"):
        both(step, other)


def test_a_tag_that_would_leave_its_step_as_a_record_is_an_error() -> None:
    step = numbers(environment()).process(Split())
    with pytest.raises(StepError, match=r"side output 'odd' .*is not read .read: none"):
        collected(step.rebalance().map(lambda v: v))


def test_a_tag_with_more_than_one_record_is_an_error() -> None:
    def many(value: int) -> Iterable[Any]:
        yield ODD, value, value

    with pytest.raises(UserFunctionError, match="a tag and 2 values"):
        both(numbers(environment()).flat_map(many))


def test_one_id_has_one_type() -> None:
    step = numbers(environment()).process(Split())
    step.get_side_output(ODD)
    with pytest.raises(InvalidJobError, match="'odd' of 'PROCESS' is requested as"):
        step.get_side_output(OutputTag("odd", Types.STRING()))


def test_what_has_no_function_has_no_side_output() -> None:
    env = environment()
    with pytest.raises(InvalidJobError, match="has no function that could yield"):
        numbers(env).get_side_output(ODD)
    with pytest.raises(InvalidJobError, match="key_by"):
        numbers(env).key_by(itself).get_side_output(ODD)
    with pytest.raises(InvalidJobError, match="needs an OutputTag; got 'odd'"):
        numbers(env).process(Split()).get_side_output("odd")  # type: ignore[arg-type]


def test_a_side_output_is_no_step_of_its_own() -> None:
    side = numbers(environment()).process(Split()).get_side_output(ODD)
    with pytest.raises(InvalidJobError, match="side output 'odd' is not a step"):
        side.name("late")


@pytest.mark.parametrize("tag_id", ["", None, 3])
def test_a_tag_needs_an_id(tag_id: Any) -> None:
    with pytest.raises(InvalidJobError, match="an OutputTag needs a non-empty string"):
        OutputTag(tag_id)


def test_a_tags_type_is_a_type() -> None:
    with pytest.raises(InvalidJobError, match="the type of OutputTag 'odd' must be a type"):
        OutputTag("odd", Types.STRING)  # type: ignore[arg-type]


def test_plans_show_side_outputs() -> None:
    env = environment(parallelism=2)
    step = numbers(env).rebalance().process(Split()).name("split")
    step.print().name("even")
    step.get_side_output(ODD).print().name("chained")
    step.get_side_output(ODD).key_by(itself).map(itself).name("keyed").print()
    plan = plan_of(env)
    (stage,) = [s for s in plan.stages if s.head.name == "split"]
    assert stage.name == "split -> (even, [odd] chained)"
    text = render_text(plan)
    assert "    -> [odd] chained  (uid" in text
    assert "writes   channel 1 (hash, side output odd) to stage 2" in text
    assert "reads    channel 1 (hash, side output odd) from stage 1" in text
    shown = render_json(plan)
    assert shown["channels"][1]["side_output"] == "odd"
    assert shown["channels"][0]["side_output"] is None
    assert shown["stages"][1]["operators"][0]["side_outputs"] == ["odd"]
    assert "  s1 -.->|hash, side output odd| s2" in render_mermaid(plan)


def test_steps_after_a_side_output_have_their_own_uid() -> None:
    def uids(swapped: bool) -> dict[str, str]:
        env = environment()
        step = numbers(env).process(Split())
        outputs = {"main": step, "side": step.get_side_output(ODD)}
        for name in sorted(outputs, reverse=swapped):
            outputs[name].print().name(name)
        nodes = [n for s in plan_of(env).stages for n in s.nodes]
        return {n.name: n.uid for n in nodes}

    assert uids(swapped=True) == uids(swapped=False)


def test_a_step_without_takers_of_side_outputs_pays_nothing_for_them(tmp_path: Path) -> None:
    from penstock.task.messages import MicroBatchTime
    from penstock.task.operators.chain import OperatorChain
    from penstock.task.time.timer_service import RecordTime
    from penstock.task.time.timestamps import ChainTimeService
    from penstock.task.time.watermark_generators import WatermarkGenerators

    env = environment()
    step = numbers(env).process(Split())
    step.print()
    (stage,) = plan_of(env).stages
    sink = stage.nodes[-1]
    writer = sink.function.writer(WriterContext(0, 1, tmp_path, "a"))
    time = ChainTimeService(stage, RecordTime(), MicroBatchTime(), WatermarkGenerators(), "#0")
    chain = OperatorChain(stage, (), {sink.id: writer}, time)
    assert chain.downstream_of(stage.nodes[-2]).__qualname__ == chain.step_of(sink).__qualname__
