"""Reads state as Spark does, without Spark: options, plan, partitions in tasks, record batches."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import Filter
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.spark.state.options import parse_options
from penstock.spark.state.plan import plan_scan
from penstock.spark.state.scan import Scan
from penstock.spark.state.source import StateReader
from tests.golden.programs import states
from tests.unit.snapshots.test_reading import GOLDEN

BOOK = "KEYED PROCESS"


def golden(name: str, directory: Path) -> Path:
    """Copy a golden job, and return the path to read: readers leave pins in its directory."""
    place = directory / name
    if not place.exists():
        shutil.copytree(GOLDEN / name, place)
    if name == "savepoint":
        (path,) = place.rglob("savepoint-*/_metadata")
        return path.parent
    return place / "checkpoints" / states.JOB


def read(path: Path, filters: Sequence[Filter] = (), **options: object) -> list[dict[str, Any]]:
    """Return the rows of a read."""
    given = {"path": str(path)} | {name: str(value) for name, value in options.items()}
    return rows_of(plan_scan(parse_options(given)), filters)


def rows_of(scan: Scan, filters: Sequence[Filter] = ()) -> list[dict[str, Any]]:
    """Return the rows of a scan, which travels as between Spark's processes."""
    scan = pickle.loads(pickle.dumps(scan))
    reader = StateReader(scan, from_arrow_schema(scan.schema))
    assert list(reader.pushFilters(list(filters))) == list(filters)
    found = []
    for partition in reader.partitions():
        in_task = pickle.loads(cloudpickle.dumps((reader, partition)))
        batches = list(in_task[0].read(in_task[1]))
        assert all(batch.num_rows for batch in batches)
        found += [row for batch in batches for row in pa.Table.from_batches([batch]).to_pylist()]
    return found


def plain(value: Any) -> Any:
    """Return a key or value without the struct around it."""
    return value["value"] if isinstance(value, dict) and value.keys() == {"value"} else value
