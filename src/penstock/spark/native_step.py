"""Steps that Spark itself runs: a plan over the rows of a stream, inside a job.

Such a step begins a stage. What waits for a subtask in its channels becomes a partition of a
DataFrame, the user's plan runs over it without moving a row to another partition, and the task
that was started for that partition runs the rest of the chain. It is one Spark job per
micro-batch, and each of its tasks stages and acknowledges like any other.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark import Broadcast, TaskContext
from pyspark.sql import DataFrame, SparkSession

from penstock.channel.columns import Layout
from penstock.common.row import Row
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.errors import InvalidJobError, PenstockError
from penstock.graph.plan import Stage
from penstock.ids import StageId
from penstock.spark.anchors import drain
from penstock.spark.row_types import ArrowRows, RowsOfBatches, row_type_of, spark_schema
from penstock.spark.row_wise import StreamLeaf
from penstock.spark.told import told_instructions
from penstock.task.keyed import Part
from penstock.task.waiting import LoadedTasks, waiting_parts

VIEW = "stream"
"""What `sql` calls the stream."""

_LITERAL_OR_VIEW = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/"""
    rf"""|(?P<before>\b(?:from|join)\s+){VIEW}\b""",
    re.IGNORECASE | re.DOTALL,
)

Build = Callable[[DataFrame], DataFrame]
Read = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class NativeStep:
    """A plan over a stream's rows; only the types of its two ends travel to tasks."""

    def __init__(
        self,
        session: SparkSession,
        method: str,
        build: Build,
        input_type: TypeInformation | None,
    ) -> None:
        if not isinstance(input_type, RowTypeInfo):
            message = (
                f"{method} needs a stream of rows with a declared type, as "
                "map(..., output_type=Types.ROW_NAMED([...], [...])) gives one; this one's type is "
                f"{input_type!r}"
            )
            raise InvalidJobError(message)
        self._method = method
        self._build: Build | None = build
        self.input_type = input_type
        self.output_type = row_type_of(self._frame(session, 1, _never).schema)

    def __getstate__(self) -> tuple[str, RowTypeInfo, RowTypeInfo]:
        return self._method, self.input_type, self.output_type

    def __setstate__(self, state: tuple[str, RowTypeInfo, RowTypeInfo]) -> None:
        self._method, self.input_type, self.output_type = state
        self._build = None

    def frame(self, session: SparkSession, stage: Stage, task: Broadcast[bytes]) -> DataFrame:
        """Return the rows behind the plan, a partition for each subtask of a stage.

        It is planned once; a micro-batch is one more run of it.
        """
        read = _WaitingRows(stage.id, task, self.input_type, sys.path)
        return self._frame(session, stage.parallelism, read)

    def read_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[Row]]:
        """Turn what comes out of the plan, inside a task, into rows."""
        yield from map(RowsOfBatches(self.output_type), batches)

    def _frame(self, session: SparkSession, parallelism: int, read: Read) -> DataFrame:
        assert self._build is not None
        own = _own_session(session)
        given = _seats(own, parallelism).mapInArrow(read, spark_schema(self.input_type))
        given.createOrReplaceTempView(VIEW)
        made = self._built(given)
        if made.isStreaming:
            message = f"{self._method} joins a stream of Spark's own: use from_stream() for it"
            raise InvalidJobError(message)
        try:
            StreamLeaf(given).check(made, self._method)
        except PenstockError:
            raise
        except Exception as error:
            message = f"{self._method} cannot be planned: {_first_line(error)}"
            raise InvalidJobError(message) from error
        return made

    def _built(self, given: DataFrame) -> DataFrame:
        assert self._build is not None
        try:
            made = self._build(given)
        except PenstockError:
            raise
        except Exception as error:
            message = f"{self._method} failed to make its plan: {_first_line(error)}"
            raise InvalidJobError(message) from error
        if not isinstance(made, DataFrame):
            message = f"{self._method} must give a DataFrame back; got {made!r}"
            raise InvalidJobError(message)
        return made


def transform_step(
    session: SparkSession, func: Build, input_type: TypeInformation | None
) -> NativeStep:
    """Make a step of a function from DataFrame to DataFrame."""
    if not callable(func):
        message = f"transform() needs a function from DataFrame to DataFrame; got {func!r}"
        raise InvalidJobError(message)
    return NativeStep(session, "transform()", func, input_type)


def sql_step(session: SparkSession, query: str, input_type: TypeInformation | None) -> NativeStep:
    """Make a step of a query over the view `stream`."""
    if not isinstance(query, str):
        message = f"sql() needs a query such as 'SELECT * FROM {VIEW}'; got {query!r}"
        raise InvalidJobError(message)
    quoted = quoted_view(query)
    return NativeStep(session, "sql()", lambda df: df.sparkSession.sql(quoted), input_type)


def quoted_view(query: str) -> str:
    """Put the view's name into quotes: to Spark's parser `FROM stream s` reads a table s."""
    return _LITERAL_OR_VIEW.sub(
        lambda found: f"{found['before']}`{VIEW}`" if found["before"] else found[0], query
    )


class _WaitingRows:
    """What Spark calls in a task to read the rows that wait for it; pickled once per stage."""

    def __init__(
        self, stage: StageId, task: Broadcast[bytes], row_type: RowTypeInfo, path: list[str]
    ) -> None:
        self._stage = stage
        self._task = task
        self._row_type = row_type
        self._path = path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        drain(batches)
        # The user's own modules are found where the driver found them.
        sys.path.extend(p for p in self._path if p not in sys.path)
        context = TaskContext.get()
        assert context is not None
        (told,) = (i for i in told_instructions(context) if i.stage == self._stage)
        task = _loaded((told.job, told.attempt, told.stage), lambda: self._task.value)
        rows = ArrowRows(self._row_type)
        for part in waiting_parts(task, told.work[context.partitionId()]):
            yield _batch(part, rows)


_loaded = LoadedTasks()


def _batch(part: Part, rows: ArrowRows) -> pa.RecordBatch:
    if part.segment.layout is Layout.ROW:
        return rows.of_columns(part.segment.columns)
    return rows.of_rows(part.values())


def _never(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    raise AssertionError


def _own_session(session: SparkSession) -> SparkSession:
    """Return a session with the user's views and functions, in which plans stay as they are."""
    own = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
    # What is planned anew while it runs cannot be run again and again.
    own.conf.set("spark.sql.adaptive.enabled", "false")
    return own


def _seats(session: SparkSession, parallelism: int) -> DataFrame:
    """Return one row per subtask, each in a partition of its own.

    As an RDD, whose size Spark does not know: it would broadcast what it thinks is small.
    """
    numbers = session.range(0, parallelism, 1, parallelism).toDF("seat")
    java = session._jsparkSession
    return DataFrame(java.createDataFrame(numbers._jdf.toJavaRDD(), numbers._jdf.schema()), session)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
