"""Fraud as a pattern of events: a charge of less than 1.00, then one of more than 500.00.

    penstock run examples/fraud_patterns.py

The large charge must be the next one of the same account, and follow within a minute; any charge in
between breaks the pattern, as in Flink's fraud detection walkthrough. The stream is out of order by
some seconds, but the charges of each account are in order.
"""

import random
from collections.abc import Iterator

from penstock.common import Duration, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors import DataGeneratorSource, RateLimiterStrategy
from penstock.datastream.state import ValueStateDescriptor

SECOND, MINUTE = 1000, 60_000
SMALL, LARGE = 1.00, 500.00
CHARGES, ACCOUNTS = 400, 8
AMOUNTS = (0.09, 0.50, 0.99, SMALL, 25.00, LARGE, 500.01, 750.00, 1200.00)

Charge = tuple[int, int, float]
"""Account, time, amount."""


def charge(number: int) -> Charge:
    """Return one charge per 5 seconds; those of some accounts are reported 4 or 8 seconds late."""
    dice = random.Random(number)
    account = dice.randrange(ACCOUNTS)
    late = 4 * (account % 3)
    return account, (100 + 5 * number - late) * SECOND, dice.choice(AMOUNTS)


class TimeOfCharge(TimestampAssigner):
    def extract_timestamp(self, value: Charge, record_timestamp: int) -> int:
        return value[1]


class Detect(KeyedProcessFunction[int, Charge, str]):
    """Sets a flag at a small charge; its value is the time at which a timer clears it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.flag = runtime_context.get_state(ValueStateDescriptor("flag", Types.LONG()))

    def process_element(self, value: Charge, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        account, at, amount = value
        until = self.flag.value()
        if until is not None:
            # Timers wait for the watermark, records do not: the flag may be outdated.
            if amount > LARGE and at <= until:
                yield f"account {account}: {amount:.2f} at {at // SECOND} s"
            ctx.timer_service().delete_event_time_timer(until)
            self.flag.clear()
        if amount < SMALL:
            self.flag.update(at + MINUTE)
            ctx.timer_service().register_event_time_timer(at + MINUTE)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> None:
        self.flag.clear()


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    source = DataGeneratorSource(
        charge,
        CHARGES,
        RateLimiterStrategy.per_second(100),
        Types.TUPLE([Types.INT(), Types.LONG(), Types.DOUBLE()]),
    )
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_seconds(10)
    ).with_timestamp_assigner(TimeOfCharge())
    # One reader: with several, the charges of an account would not stay in order.
    charges = env.from_source(source, strategy, "charges").set_parallelism(1)
    by_account = charges.key_by(lambda made: made[0], Types.INT())
    by_account.process(Detect(), Types.STRING()).print("alert")
    env.execute("fraud patterns")
