"""Steps that Spark runs over the rows of a stream: `transform` and `sql`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.common import Configuration, Row, Types, WatermarkStrategy
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.errors import InvalidJobError, MicroBatchFailedError
from penstock.spark.session import open_session
from tests.unit import support

pytestmark = pytest.mark.spark

NUMBERS = Types.ROW_NAMED(["n", "word"], [Types.LONG(), Types.STRING()])
LAST = 2000


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = open_session({"spark.master": "local[2,4]"})
    dims = session.createDataFrame([("w1", "one"), ("w2", "two")], "word string, name string")
    dims.createOrReplaceTempView("dims")
    yield session
    session.stop()


def environment(**settings: str) -> StreamExecutionEnvironment:
    configuration = Configuration.from_dict({"penstock.micro-batch.max-records": "500", **settings})
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)


def words(env: StreamExecutionEnvironment) -> DataStream:
    numbers = NumberSequenceSource(1, LAST)
    stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
    return stream.map(lambda n: Row(n, f"w{n % 4} x"), NUMBERS)


def dies_once(flag: Path) -> Callable[[Row], Row]:
    def die(row: Row) -> Row:
        if row.n > LAST // 2:
            try:
                flag.touch(exist_ok=False)
            except FileExistsError:
                return row
            os.kill(os.getpid(), signal.SIGKILL)
        return row

    return die


@pytest.mark.parametrize("way", ["channel", "shuffle"])
def test_native_steps_return_the_same_as_python_even_if_a_worker_is_killed(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    native = (
        words(environment(**{"penstock.exchange": way}))
        .transform(lambda df: df.withColumn("word", f.explode(f.split("word", " "))))
        .sql(
            "SELECT /*+ BROADCAST(d) */ s.n, upper(s.word) AS word, d.name "
            "FROM stream s LEFT JOIN dims d ON s.word = d.word WHERE s.n % 3 != 0"
        )
    )
    assert native.get_type() == Types.ROW_NAMED(
        ["n", "word", "name"], [Types.LONG(), Types.STRING(), Types.STRING()]
    )
    survived = native.map(dies_once(tmp_path / "died"), native.get_type())
    keyed = survived.key_by(lambda row: row.word, Types.STRING()).map(lambda row: tuple(row))
    before = _jobs(spark)
    with keyed.execute_and_collect() as results:
        got = sorted(results, key=str)
        batches = results.get_micro_batches()
    expected = [
        (n, word.upper(), {"w1": "one", "w2": "two"}.get(word))
        for n in range(1, LAST + 1)
        if n % 3
        for word in (f"w{n % 4}", "x")
    ]
    assert got == sorted(expected, key=str)
    assert (tmp_path / "died").exists()
    of_transform = [b for b in batches if b.stage_name.startswith("Transform")]
    assert len(of_transform) >= 2
    assert sum(b.records_in for b in of_transform) == LAST
    # One each; and once the table that is joined, what is cached on executors, a lost try.
    groups = {(b.stage, b.batch) for b in batches}
    assert _jobs(spark) - before <= len(groups) + 8


def _jobs(spark: SparkSession) -> int:
    count: int = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()
    return count


PLANS: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "group": (lambda df: df.groupBy("word").count(), r"aggregates rows.*: use key_by\(\)"),
    "distinct": (lambda df: df.distinct(), r"removes duplicates: use key_by\(\)"),
    "sort": (lambda df: df.orderBy("n"), "sorts rows"),
    "sort within": (lambda df: df.sortWithinPartitions("n"), "sorts rows"),
    "limit": (lambda df: df.limit(3), "takes the first rows: count them in"),
    "repartition": (lambda df: df.repartition(7), r"moves rows: use rebalance\(\)"),
    "window": (
        lambda df: df.selectExpr("n", "sum(n) over (partition by word order by n) as s"),
        r"has a window over rows: use key_by\(\)",
    ),
    "union": (lambda df: df.union(df), "uses the stream more than once"),
    "itself": (lambda df: df.alias("a").join(df.alias("b"), "n"), "uses the stream more than once"),
    "other rows": (lambda df: df.sparkSession.range(3).toDF("n"), "not derived from the stream"),
    "batches": (lambda df: df.mapInArrow(lambda b: b, df.schema), "function on whole batches"),
    "time": (lambda df: df.select(f.current_timestamp().alias("t")), "uses the current time"),
    "no column": (lambda df: df.select("nobody"), r"failed to build its plan: .*nobody"),
    "no frame": (lambda df: 7, "must return a DataFrame; got 7"),
    "two names": (lambda df: df.select("n", "n"), "two columns named 'n'"),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_is_not_row_wise_is_refused_when_it_is_built(
    spark: SparkSession, name: str
) -> None:
    plan, said = PLANS[name]
    with pytest.raises(InvalidJobError, match=said):
        words(environment()).transform(plan)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT * FROM stream WHERE n > (SELECT avg(n) FROM stream)", "more than once"),
        (
            "SELECT d.* FROM stream s RIGHT JOIN dims d ON d.word = s.word",
            "left outer join from",
        ),
        ("SELECT s.* FROM stream s JOIN dims d ON d.word = s.word", r"BROADCAST\(name\)"),
        ("SELECT (SELECT max(n) FROM stream) AS m FROM dims", "this plan"),
        ("SELEC", "failed to build its plan"),
    ],
    ids=["subquery", "right join", "large join", "value of all", "syntax"],
)
def test_a_query_that_is_not_row_wise_is_refused_when_it_is_built(
    spark: SparkSession, query: str, said: str
) -> None:
    with pytest.raises(InvalidJobError, match=said):
        words(environment()).sql(query)


def test_a_stream_without_a_row_type_is_refused(spark: SparkSession) -> None:
    stream = environment().from_collection([1, 2], Types.LONG())
    with pytest.raises(
        InvalidJobError, match=r"declared type.*ROW_NAMED.*type of this one is Long"
    ):
        stream.transform(lambda df: df)


def test_an_error_inside_the_plan_fails_the_job_with_its_reason(spark: SparkSession) -> None:
    stream = words(environment(**{"restart-strategy.type": "none"}))
    divided = stream.sql("SELECT n DIV (n - 7) AS d FROM stream")
    with pytest.raises(MicroBatchFailedError, match="DIVIDE_BY_ZERO"):
        divided.execute_and_collect(limit=LAST)


def test_without_spark_a_native_step_says_so(spark: SparkSession) -> None:
    env = support.environment()
    rows: Any = env.from_collection([Row(1, "a")], NUMBERS).transform(lambda df: df)
    with pytest.raises(InvalidJobError, match="'Transform' is run by Spark"):
        support.collected(rows)
