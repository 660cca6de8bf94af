"""Steps that Spark runs itself: a DataFrame plan over the rows of a stream.

Such a step begins a stage. The records that wait for a subtask in its channels become a partition
of a DataFrame, the user's plan runs over it without moving a row to another partition, and the
Spark task of that partition runs the rest of the operator chain. A micro-batch is one Spark job,
and its tasks stage output and acknowledge like all others.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession

from penstock.channel.columns import RecordLayout
from penstock.common.row import Row
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.errors import InvalidJobError, PenstockError
from penstock.graph.plan import Stage
from penstock.ids import StageId
from penstock.spark.native.row_wise_check import StreamLeaf
from penstock.spark.row_types import ArrowRows, RowsOfBatches, row_type_of, spark_schema
from penstock.spark.submit.anchors import drain
from penstock.spark.submit.instruction_property import enter_task, read_instructions
from penstock.task.heads.inputs import InputSlice, input_slices
from penstock.task.stage_task import StageTaskCache

VIEW = "stream"
"""The name of the stream in a query of `sql()`."""

_LITERAL_OR_VIEW = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/"""
    rf"""|(?P<before>\b(?:from|join)\s+){VIEW}\b""",
    re.IGNORECASE | re.DOTALL,
)

Build = Callable[[DataFrame], DataFrame]
Read = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class NativeStep:
    """A plan over the rows of a stream; tasks get only its input and output types."""

    def __init__(
        self,
        session: SparkSession,
        method: str,
        build: Build,
        input_type: TypeInformation | None,
    ) -> None:
        if not isinstance(input_type, RowTypeInfo):
            message = (
                f"{method} needs a stream of rows with a declared type, such as the result of "
                "map(..., output_type=Types.ROW_NAMED([...], [...])); the type of this one is "
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

    def frame(
        self,
        session: SparkSession,
        stage: Stage,
        task: Broadcast[bytes],
        instructions: bytes | None = None,
    ) -> DataFrame:
        """Return the result of the plan, with a partition for each subtask of a stage.

        Without instructions it is planned once, and a micro-batch is one more run of it.
        """
        read = _WaitingRows(stage.id, task, self.input_type, sys.path, instructions)
        return self._frame(session, stage.parallelism, read)

    def read_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[Row]]:
        """Convert the output of the plan into rows, inside a task."""
        yield from map(RowsOfBatches(self.output_type), batches)

    def _frame(self, session: SparkSession, parallelism: int, read: Read) -> DataFrame:
        assert self._build is not None
        own = _own_session(session)
        stream = _partitions(own, parallelism).mapInArrow(read, spark_schema(self.input_type))
        stream.createOrReplaceTempView(VIEW)
        result = self._built(stream)
        if result.isStreaming:
            message = f"{self._method} joins a streaming DataFrame: use from_stream() for it"
            raise InvalidJobError(message)
        try:
            StreamLeaf(stream).check(result, self._method)
        except PenstockError:
            raise
        except Exception as error:
            message = f"{self._method} cannot be planned: {_first_line(error)}"
            raise InvalidJobError(message) from error
        return result

    def _built(self, stream: DataFrame) -> DataFrame:
        assert self._build is not None
        try:
            result = self._build(stream)
        except PenstockError:
            raise
        except Exception as error:
            message = f"{self._method} failed to build its plan: {_first_line(error)}"
            raise InvalidJobError(message) from error
        if not isinstance(result, DataFrame):
            message = f"{self._method} must return a DataFrame; got {result!r}"
            raise InvalidJobError(message)
        return result


def transform_step(
    session: SparkSession, func: Build, input_type: TypeInformation | None
) -> NativeStep:
    """Create a step from a function of a DataFrame that returns a DataFrame."""
    if not callable(func):
        message = f"transform() needs a function from DataFrame to DataFrame; got {func!r}"
        raise InvalidJobError(message)
    return NativeStep(session, "transform()", func, input_type)


def sql_step(session: SparkSession, query: str, input_type: TypeInformation | None) -> NativeStep:
    """Create a step from a query over the view `stream`."""
    if not isinstance(query, str):
        message = f"sql() needs a query such as 'SELECT * FROM {VIEW}'; got {query!r}"
        raise InvalidJobError(message)
    quoted = quoted_view(query)
    return NativeStep(session, "sql()", lambda df: df.sparkSession.sql(quoted), input_type)


def quoted_view(query: str) -> str:
    """Quote the name of the view: Spark's parser reads `FROM stream s` as a streaming table `s`."""
    return _LITERAL_OR_VIEW.sub(
        lambda found: f"{found['before']}`{VIEW}`" if found["before"] else found[0], query
    )


class _WaitingRows:
    """Reads the records that wait for a subtask, in its Spark task; pickled for each plan."""

    def __init__(
        self,
        stage: StageId,
        task: Broadcast[bytes],
        row_type: RowTypeInfo,
        path: Sequence[str],
        instructions: bytes | None,
    ) -> None:
        self._stage = stage
        self._task = task
        self._row_type = row_type
        self._path = path
        self._instructions = instructions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        drain(batches)
        context = enter_task(self._path)
        instructions = read_instructions(context, self._instructions)
        (instruction,) = (i for i in instructions if i.stage == self._stage)
        stage = instruction.job, instruction.attempt, instruction.stage
        task = _loaded(stage, lambda: self._task.value)
        rows = ArrowRows(self._row_type)
        work = instruction.work[context.partitionId()]
        for part in input_slices(task.stage.inputs, task.layout, work):
            yield _batch(part, rows)


_loaded = StageTaskCache()


def _batch(part: InputSlice, rows: ArrowRows) -> pa.RecordBatch:
    if part.segment.layout is RecordLayout.ROW:
        return rows.of_columns(part.segment.columns)
    return rows.of_rows(part.values())


def _never(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    raise AssertionError


def _own_session(session: SparkSession) -> SparkSession:
    """Return a session with the user's views and functions, without adaptive execution."""
    own = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
    # A plan that adapts while it runs cannot be run again for the next micro-batch.
    own.conf.set("spark.sql.adaptive.enabled", "false")
    return own


def _partitions(session: SparkSession, parallelism: int) -> DataFrame:
    """Return one row per subtask, each in its own partition.

    It is made from an RDD, whose size Spark does not know: Spark would broadcast a small relation.
    """
    numbers = session.range(0, parallelism, 1, parallelism).toDF("subtask")
    java = session._jsparkSession
    return DataFrame(java.createDataFrame(numbers._jdf.toJavaRDD(), numbers._jdf.schema()), session)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
