"""Online learning: a model per sensor in keyed state, which learns from every event.

    penstock run examples/online_learning.py

Each model predicts what a meter will show, then learns from the actual value with one step of
gradient descent. So every prediction is about a value that the model has not seen, and the errors
are an honest measure of the model. They are printed per hundred events. Models are part of the
checkpoints: after a failure they are restored, and no event is learned twice.
"""

import random
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.common import Types, WatermarkStrategy
from penstock.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    WindowFunction,
)
from penstock.datastream.connectors import DataGeneratorSource, RateLimiterStrategy
from penstock.datastream.state import ValueStateDescriptor

TRUTH = {"north": [2.0, -1.0, 0.5], "south": [-3.0, 0.5, 1.0]}
"""What the model learns: two factors, and the value of the meter when both inputs are zero."""
NOISE, RATE = 0.1, 0.05
EVENTS = 2000
NUMBERS = Types.LIST(Types.DOUBLE())

Reading = tuple[str, list[float], float]
"""Sensor, inputs, value of the meter."""
Prediction = tuple[str, float, float, list[float]]
"""Sensor, prediction, value of the meter, the model that predicted."""


def reading(number: int) -> Reading:
    dice = random.Random(number)
    sensor = dice.choice(sorted(TRUTH))
    known = [dice.uniform(-1, 1), dice.uniform(-1, 1), 1.0]
    return sensor, known, product(TRUTH[sensor], known) + dice.gauss(0, NOISE)


def product(weights: list[float], values: list[float]) -> float:
    return sum(w * v for w, v in zip(weights, values, strict=True))


class PredictThenLearn(KeyedProcessFunction[str, Reading, Prediction]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.model = runtime_context.get_state(ValueStateDescriptor("model", NUMBERS))

    def process_element(
        self, value: Reading, ctx: KeyedProcessFunction.Context
    ) -> Iterator[Prediction]:
        sensor, known, shown = value
        model = self.model.value() or [0.0] * len(known)
        predicted = product(model, known)
        yield sensor, predicted, shown, model
        step = RATE * (shown - predicted)
        self.model.update([w + step * v for w, v in zip(model, known, strict=True)])


class Errors(WindowFunction[Prediction, str, str, Any]):
    def apply(self, key: str, window: Any, inputs: Iterable[Prediction]) -> Iterable[str]:
        made = list(inputs)
        loss = sum((predicted - shown) ** 2 for _, predicted, shown, _ in made) / len(made)
        weights = ", ".join(f"{weight:.3f}" for weight in made[-1][3])
        yield f"{key}: mean loss {loss:.4f}, model [{weights}]"


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    source = DataGeneratorSource(
        reading,
        EVENTS,
        RateLimiterStrategy.per_second(500),
        Types.TUPLE([Types.STRING(), NUMBERS, Types.DOUBLE()]),
    )
    readings = env.from_source(source, WatermarkStrategy.no_watermarks(), "readings")
    readings.set_parallelism(1)  # one reader: every run learns in the same order
    predictions = readings.key_by(lambda read: read[0], Types.STRING()).process(
        PredictThenLearn(), Types.TUPLE([Types.STRING(), Types.DOUBLE(), Types.DOUBLE(), NUMBERS])
    )
    hundreds = predictions.key_by(lambda made: made[0], Types.STRING()).count_window(100)
    hundreds.apply(Errors(), Types.STRING()).print()
    env.execute("online learning")
