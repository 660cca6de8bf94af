"""An existing SparkSession: the cells of a notebook, which start, watch and cancel a job."""

# %%
import contextlib
import os
import sys

from pyspark.sql import SparkSession

from penstock.common import Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DataGeneratorSource, RateLimiterStrategy
from penstock.errors import JobCancelledError

# %% The notebook's session, with the settings that penstock needs. Workers run the same Python.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = (
    SparkSession.builder.master("local[*,4]")
    .config("spark.scheduler.mode", "FAIR")
    .config("spark.stage.maxConsecutiveAttempts", "1")
    .config("spark.python.daemon.module", "penstock.spark.daemon")
    .getOrCreate()
)

# %% The environment uses the active session.
env = StreamExecutionEnvironment.get_execution_environment()
orders = spark.createDataFrame([("tea", 3), ("ink", 1), ("tea", 4)], "item string, n int")

# %% A bounded job: its results come back to the notebook.
counts = env.from_dataframe(orders).key_by(lambda row: row.item, Types.STRING()).sum("n")
with counts.execute_and_collect() as results:
    print({row.item: row.n for row in results})

# %% An unbounded job: start it, continue working, look at it, cancel it.
ticks = DataGeneratorSource(int, 10**9, RateLimiterStrategy.per_second(10), Types.LONG())
stream = env.from_source(ticks, WatermarkStrategy.no_watermarks(), "ticks")
stream.key_by(lambda n: n % 3, Types.LONG()).sum().print()
client = env.execute_async("ticks")
print(client.get_job_status().result().name, spark.range(10).count())

# %%
client.cancel().result()
with contextlib.suppress(JobCancelledError):
    client.get_job_execution_result().result()  # wait until it has ended
print(client.get_job_status().result().name)
