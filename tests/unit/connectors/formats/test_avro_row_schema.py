import datetime
import io
import itertools
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import cloudpickle
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import Row, Types
from penstock.datastream.formats.avro import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
    AvroSchema,
)
from penstock.datastream.formats.parquet import AvroParquetReaders, AvroParquetWriters
from penstock.errors import (
    ConnectorError,
    InvalidJobError,
    UnreadableFileError,
    UnwritableRecordError,
)
from tests.unit.connectors.formats.reading import read_lists

DESCRIBED: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": "int"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {
            "name": "place",
            "type": {
                "type": "record",
                "name": "Place",
                "fields": [{"name": "city", "type": "string"}],
            },
        },
    ],
}
TEXT = json.dumps(DESCRIBED)
AT = datetime.datetime(2024, 2, 29, 1, 2, 3)  # noqa: DTZ001
ROW = Row(
    id=1,
    name=None,
    tags=["a"],
    sizes={"x": 1},
    at=AT,
    day=datetime.date(2024, 2, 29),
    price=Decimal("1.50"),
    place=Row(city="Ulm"),
)
RECORD = {**ROW.as_dict(True), "at": AT.replace(tzinfo=datetime.UTC)}


def test_the_type_of_rows_is_that_of_flink() -> None:
    kind = AvroRowDeserializationSchema(avro_schema_string=TEXT).get_produced_type()
    assert kind == Types.ROW_NAMED(
        ["id", "name", "tags", "sizes", "at", "day", "price", "place"],
        [
            Types.LONG(),
            Types.STRING(),
            Types.OBJECT_ARRAY(Types.STRING()),
            Types.MAP(Types.STRING(), Types.INT()),
            Types.SQL_TIMESTAMP(),
            Types.SQL_DATE(),
            Types.BIG_DEC(),
            Types.ROW_NAMED(["city"], [Types.STRING()]),
        ],
    )


def test_rows_become_bytes_that_another_library_reads_and_back() -> None:
    writer = AvroRowSerializationSchema(avro_schema_string=TEXT)
    reader = AvroRowDeserializationSchema(avro_schema_string=TEXT)
    data = cloudpickle.loads(cloudpickle.dumps(writer)).serialize(ROW)
    parsed = fastavro.parse_schema(DESCRIBED)
    assert fastavro.schemaless_reader(io.BytesIO(data), parsed, None) == RECORD
    assert writer.serialize(tuple(ROW)) == data
    assert cloudpickle.loads(cloudpickle.dumps(reader)).deserialize(data) == ROW


def test_bytes_and_rows_of_another_schema_are_rejected() -> None:
    with pytest.raises(ConnectorError, match="Failed to deserialize Avro record"):
        AvroRowDeserializationSchema(avro_schema_string=TEXT).deserialize(b"\x02")
    writer = AvroRowSerializationSchema(avro_schema_string=TEXT)
    row = Row(**{**ROW.as_dict(), "id": "one"})
    with pytest.raises(UnwritableRecordError, match=r"Order\.id is <one>"):
        writer.serialize(row)


@pytest.mark.parametrize("schema", [AvroRowSerializationSchema, AvroRowDeserializationSchema])
def test_types_without_a_row_type_are_rejected_while_building(schema: Any) -> None:
    with pytest.raises(TypeError, match="should be specified"):
        schema()
    with pytest.raises(InvalidJobError, match="is a Java class"):
        schema(record_class="com.example.Order")
    union = {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["int", "string"]}]}
    with pytest.raises(InvalidJobError, match="field 'x'"):
        schema(avro_schema_string=json.dumps(union))
    inside = {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", "R"]}]}
    with pytest.raises(InvalidJobError, match="recursive records"):
        schema(avro_schema_string=json.dumps(inside))


def test_avro_records_in_parquet_files_are_read_as_written(tmp_path: Path) -> None:
    factory = AvroParquetWriters.for_generic_record(AvroSchema(TEXT))
    pieces = []
    for number, records in enumerate([[RECORD, {**RECORD, "id": 2}], [{**RECORD, "id": 3}]]):
        pieces.append(tmp_path / str(number))
        with pieces[-1].open("wb") as file:
            writer = factory.create(file)
            for record in records:
                writer.add_element(record)
            writer.finish()
    path = tmp_path / "all"
    with path.open("wb") as file:
        factory.merge(pieces, file)
    assert pq.read_table(path)["id"].to_pylist() == [1, 2, 3]
    assert pq.read_table(path)["place"].to_pylist() == [{"city": "Ulm"}] * 3
    reader = AvroParquetReaders.for_generic_record(AvroSchema(TEXT))
    chunks = read_lists(reader, path, 0, path.stat().st_size)
    assert list(itertools.chain(*chunks)) == [{**RECORD, "id": n} for n in (1, 2, 3)]


def test_a_parquet_file_of_another_schema_is_rejected(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["one"]}), tmp_path / "f")
    reader = AvroParquetReaders.for_generic_record(AvroSchema(TEXT))
    with pytest.raises(UnreadableFileError, match="field 'id' is string"):
        read_lists(reader, tmp_path / "f", 0, 10)
    with (
        (tmp_path / "g").open("wb") as file,
        pytest.raises(UnwritableRecordError, match=r"Order\.id"),
    ):
        AvroParquetWriters.for_generic_record(AvroSchema(TEXT)).create(file).add_element(
            {**RECORD, "id": None}
        )
