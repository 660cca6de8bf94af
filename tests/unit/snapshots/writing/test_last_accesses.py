"""When values of a state with a time-to-live were last written, and columns that do not say so."""

from __future__ import annotations

import datetime
import time
from typing import Any

import pyarrow as pa
import pytest

from penstock.savepoint.layout import SavedOperator
from penstock.snapshots.writing.row_encoder import Encoded, RowEncoder
from penstock.snapshots.writing.targets import StateTarget, columns_by_role
from penstock.state.registry.meta_info import StateMetaInfo, TtlMetaInfo
from penstock.state.ttl.timestamps import split_timestamps

VALUE, LIST, MAP = "value state", "list state", "map state"
TYPES = {VALUE: "LONG", LIST: "LIST(LONG)", MAP: "MAP(STRING, LONG)"}
VALUES = {VALUE: ("value", 7), LIST: ("list_value", [7, 8]), MAP: ("user_map_value", 7)}
MOMENT = datetime.datetime(2024, 1, 2, 3, 4, 5, 678901, datetime.UTC)
MILLIS = 1704164645678
UTC = pa.timestamp("us", "UTC")


def encoded(kind: str, since: pa.Array) -> Encoded:
    name, value = VALUES[kind]
    columns: dict[str, Any] = {"key": pa.array(["a"] * len(since))}
    columns[name] = pa.array([value] * len(since))
    if kind == MAP:
        columns["user_map_key"] = pa.array(["x"] * len(since))
    batch = pa.RecordBatch.from_pydict({**columns, "alive_since": since})
    info = StateMetaInfo(1, kind, TYPES[kind], ttl=TtlMetaInfo(1000, 0, True))
    target = StateTarget(SavedOperator("op", "STRING", 128), 1, "s", info)
    roles, _ = columns_by_role(target, batch.schema.names)
    return RowEncoder(target, roles).encode(batch)


def times_of(kind: str, since: pa.Array) -> list[list[int]]:
    found = encoded(kind, since)
    assert found.problems == []
    return [list(split_timestamps(data, kind)[0]) for data in found.values.to_pylist()]


def test_moments_are_exact_to_the_millisecond() -> None:
    assert times_of(VALUE, pa.array([MOMENT], UTC)) == [[MILLIS]]
    assert times_of(VALUE, pa.array([MILLIS])) == [[MILLIS]]
    assert times_of(LIST, pa.array([[MOMENT, MOMENT]], pa.list_(UTC))) == [[MILLIS, MILLIS]]
    assert times_of(MAP, pa.array([[MOMENT]], pa.list_(UTC))) == [[MILLIS]]


def test_one_moment_is_that_of_all_elements_of_a_list() -> None:
    assert times_of(LIST, pa.array([MOMENT], UTC)) == [[MILLIS, MILLIS]]


@pytest.mark.parametrize(
    ("kind", "since"),
    [
        (VALUE, pa.array([None], UTC)),
        (VALUE, pa.nulls(1)),
        (MAP, pa.array([[None]], pa.list_(UTC))),
        (LIST, pa.array([None], pa.list_(UTC))),
        (LIST, pa.array([[None, None]], pa.list_(UTC))),
    ],
)
def test_null_stands_for_now(kind: str, since: pa.Array) -> None:
    before = int(time.time() * 1000)
    (times,) = times_of(kind, since)
    assert all(before <= one <= time.time() * 1000 for one in times)
    assert len(times) == (2 if kind == LIST else 1)


@pytest.mark.parametrize(
    ("kind", "since", "reason"),
    [
        (VALUE, pa.array([MOMENT.replace(tzinfo=None)]), "it has no time zone"),
        (LIST, pa.array([[MOMENT.replace(tzinfo=None)] * 2]), "it has no time zone"),
        (VALUE, pa.array(["yesterday"]), "it is no time"),
        (VALUE, pa.array([1.5]), "it is no time"),
        (VALUE, pa.array([MOMENT.date()]), "it is no time"),
        (LIST, pa.array([["yesterday"]]), "it is no time"),
        (VALUE, pa.array([[MOMENT, MOMENT]]), "it has 2 times for 1 value"),
        (MAP, pa.array([[]], pa.list_(UTC)), "it has 0 times for 1 value"),
        (LIST, pa.array([[MOMENT]], pa.list_(UTC)), "it has 1 time for 2 values"),
    ],
)
def test_what_is_no_moment_for_each_value_is_a_problem(
    kind: str, since: pa.Array, reason: str
) -> None:
    found = encoded(kind, since)
    assert len(found.values) == 0
    (problem,) = found.problems
    assert problem.reason == reason
    text = "operator 'op', state 's', column 'alive_since', key 'a': "
    assert str(problem).startswith(text)
