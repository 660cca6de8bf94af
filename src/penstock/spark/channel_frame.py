"""What waits in a channel as a DataFrame."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.session import open_session


def channel_frame(rows: pa.Table, spark: SparkSession | None) -> DataFrame:
    """Return rows as a DataFrame of a session: the one given, the active one, or a new one.

    The rows are what was there when they were read: reading the DataFrame asks the job nothing.
    """
    if not rows.num_rows:
        # Spark takes a table without rows, but not one without a batch.
        rows = pa.Table.from_batches([pa.RecordBatch.from_pylist([], rows.schema)])
    session = spark or SparkSession.getActiveSession() or open_session({})
    return session.createDataFrame(rows)
