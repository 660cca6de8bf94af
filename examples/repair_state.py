"""Repairs a bug in the state of a job: read it, correct it with Spark SQL, write it, start again.

A job adds up what customers pay. Refunds were added instead of subtracted, so the totals in its
savepoint are wrong. The refunds are known from a table: Spark computes what the totals should be,
a new savepoint gets them, and the corrected program continues from there.
"""

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from penstock.common import Configuration, Row, Types
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.spark.session import open_session
from penstock.spark.state import SavepointWriter, keyed_state, read_state

PAYMENTS = [("ann", 30), ("bob", 20), ("ann", 12), ("cid", 9), ("bob", 5)]
REFUNDS = [("ann", 12), ("cid", 9)]
LATER = [("ann", 1), ("bob", 1), ("cid", 1)]
TOTAL = ValueStateDescriptor("total", Types.LONG())


class AddUp(KeyedProcessFunction[str, Row, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(TOTAL)

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterable[str]:
        total = (self.total.value() or 0) + value.amount
        self.total.update(total)
        yield f"{ctx.get_current_key()} has paid {total}"


def run(spark: SparkSession, payments: list[tuple[str, int]], savepoint: str) -> None:
    """Run the job from a savepoint over some payments."""
    settings = Configuration.from_dict({"execution.state-recovery.path": savepoint})
    env = StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(2)
    rows = env.from_dataframe(spark.createDataFrame(payments, "customer string, amount bigint"))
    keyed = rows.key_by(lambda row: row.customer, Types.STRING())
    keyed.process(AddUp(), Types.STRING()).uid("totals").print()
    env.execute("totals")


def saved_by_the_wrong_program(spark: SparkSession, path: Path) -> str:
    """Return the savepoint that the job was stopped with: refunds were added, too."""
    both = spark.createDataFrame(PAYMENTS + REFUNDS, "key string, amount bigint")
    totals = both.groupBy("key").sum("amount").toDF("key", "value")
    writer = SavepointWriter.new_savepoint(spark)
    return writer.with_operator("totals", Types.STRING(), [keyed_state(TOTAL, totals)]).write(path)


def corrected(totals: DataFrame) -> DataFrame:
    """Return the totals without the refunds, which were added and should be subtracted."""
    refunds = totals.sparkSession.createDataFrame(REFUNDS, "customer string, amount bigint")
    return totals.sparkSession.sql(
        "SELECT t.key, t.value.value - 2 * coalesce(r.amount, 0) AS value "
        "FROM {totals} t LEFT JOIN {refunds} r ON r.customer = t.key.value",
        totals=totals,
        refunds=refunds,
    )


def shown(spark: SparkSession, savepoint: str) -> dict[str, int]:
    rows = read_state(spark, savepoint, operator="totals", state="total").collect()
    return {row.key["value"]: row.value["value"] for row in sorted(rows)}


def main(directory: Path) -> None:
    spark = open_session({})
    wrong = saved_by_the_wrong_program(spark, directory / "wrong")
    print("stored:", shown(spark, wrong))

    writer = SavepointWriter.from_existing_savepoint(spark, wrong)
    writer.transform_state("totals", "total", corrected)
    report = writer.dry_run()
    print("dry run:", report)
    if not report.ok:
        sys.exit(1)
    right = writer.write(directory / "right")
    print("corrected:", shown(spark, right))
    run(spark, LATER, right)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(made))
