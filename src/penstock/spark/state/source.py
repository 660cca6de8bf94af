"""The format `penstock.state` of `spark.read`: a Python Data Source.

Spark makes it in a process of the driver, which reads the schema. It sends it to another one, which
plans the partitions, and to tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import StateOptionError
from penstock.spark.state.options import PATH, parse_options
from penstock.spark.state.plan import plan_scan
from penstock.spark.state.scan import Scan, StatePartition

STATE_FORMAT = "penstock.state"


class ScannedSource(DataSource):  # type: ignore[misc]
    """A source whose schema comes from what is read."""

    defaults: ClassVar[Mapping[str, str]] = {}
    """Settings of stores, for reads that do not set them."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = {**self.defaults, **options}
        self._scan: Scan | None = None

    def scan(self) -> Scan:
        """Return what is read."""
        raise NotImplementedError

    def schema(self) -> StructType:
        """Return the columns, as the snapshot has them."""
        return from_arrow_schema(self._planned().schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of what was planned with the schema."""
        scan = self._planned()
        if schema != from_arrow_schema(scan.schema):
            option = "schema"
            raise StateOptionError(option, "it comes from the snapshot: leave it out")
        self._scan = None  # this object travels to tasks
        return StateReader(scan, schema)

    def _planned(self) -> Scan:
        if self._scan is None:
            self._scan = self.scan()
        return self._scan


class StateSource(ScannedSource):
    """State of a job, as its operators or its sources and sinks have it in a snapshot."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return STATE_FORMAT

    def scan(self) -> Scan:
        """Return what the options name."""
        if PATH not in self._given:
            raise StateOptionError(PATH, "give the path of a checkpoint, a savepoint or a job")
        return plan_scan(parse_options(self._given))


class StateReader(DataSourceReader):  # type: ignore[misc]
    """Reads the partitions of a scan."""

    def __init__(self, scan: Scan, schema: StructType) -> None:
        self._scan = scan
        self._schema = schema
        self._filters: Sequence[Filter] = ()
        self.pushFilters = _PushFilters(self)

    def keep_filters(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        """Leave out what the filters exclude, as far as that is easy; Spark filters again."""
        self._filters = filters
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """Return what tasks read."""
        return self._scan.partitions(self._filters)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition in a task."""
        if not isinstance(partition, StatePartition):
            return iter(())  # Spark makes one if there is none
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        return (batch.cast(wanted) for batch in partition.batches())

    def __getstate__(self) -> dict[str, Any]:
        """Travel to tasks without the plan: they get their partitions."""
        return {"_schema": self._schema}


class _PushFilters:
    """Takes the filters of a query.

    Without `spark.sql.python.filterPushdown.enabled` Spark refuses a reader that overrides the
    method `pushFilters`, instead of reading without it. So this names the base class as its owner.
    """

    def __init__(self, reader: StateReader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.keep_filters(filters)
