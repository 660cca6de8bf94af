from typing import Any

import pyarrow as pa
import pytest

from penstock.common import Row, Types
from penstock.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    SimpleStringSchema,
)
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.connectors.kafka import KafkaRecordDeserializationSchema
from penstock.datastream.formats.json import JsonRowDeserializationSchema
from penstock.errors import InvalidJobError, UndecodableRecordError

ORDER = Types.ROW_NAMED(["id"], [Types.INT()])
VALUE_ONLY = KafkaRecordDeserializationSchema.value_only
FIELDS = KafkaRecordDeserializationSchema.fields


def batch(values: list[bytes | None], **columns: pa.Array) -> pa.RecordBatch:
    count = len(values)
    defaults = {
        "value": pa.array(values, pa.binary()),
        "partition": pa.array([3] * count, pa.int32()),
        "offset": pa.array(range(100, 100 + count), pa.int64()),
    }
    return pa.RecordBatch.from_pydict(defaults | columns)


class OnlyDigits(DeserializationSchema):
    def deserialize(self, message: bytes) -> Any:
        return int(message) if message != b"skip" else None

    def get_produced_type(self) -> TypeInformation:
        return Types.INT()


def json_orders(*, ignore: bool = False) -> JsonRowDeserializationSchema:
    builder = JsonRowDeserializationSchema.builder().type_info(ORDER)
    return builder.ignore_parse_errors().build() if ignore else builder.build()


def test_values_become_strings_with_invalid_bytes_replaced() -> None:
    schema = VALUE_ONLY(SimpleStringSchema())
    assert schema.decode(batch([b"a", "é".encode(), b""]), "t") == ["a", "é", ""]
    assert schema.decode(batch([b"a", b"\xff"]), "t") == ["a", "\ufffd"]
    latin = VALUE_ONLY(SimpleStringSchema("latin-1"))
    assert latin.decode(batch([b"\xe9"]), "t") == ["é"]
    large = pa.RecordBatch.from_pydict({"value": pa.array([b"a"], pa.large_binary())})
    assert schema.decode(large, "t") == ["a"]


def test_values_stay_bytes() -> None:
    assert VALUE_ONLY(ByteArraySchema()).decode(batch([b"\xff", b""]), "t") == [b"\xff", b""]


def test_records_a_schema_returns_none_for_are_dropped() -> None:
    assert VALUE_ONLY(OnlyDigits()).decode(batch([b"1", b"skip", b"2"]), "t") == [1, 2]
    ignoring = VALUE_ONLY(json_orders(ignore=True))
    assert ignoring.decode(batch([b'{"id":1}', b"{", None]), "t") == [Row(id=1)]


def test_an_undecodable_record_is_reported_with_partition_offset_and_bytes() -> None:
    with pytest.raises(UndecodableRecordError) as raised:
        VALUE_ONLY(json_orders()).decode(batch([b'{"id":1}', b'{"id":' + b"x" * 500]), "orders")
    message = str(raised.value)
    assert message.startswith(
        "topic 'orders', partition 3, offset 101: cannot decode b'{\"id\":xxx"
    )
    assert len(message) < 500
    topics = pa.array(["other"])
    with pytest.raises(UndecodableRecordError, match="topic 'other'"):
        VALUE_ONLY(OnlyDigits()).decode(batch([b"x"], topic=topics), "pattern")


def test_a_tombstone_is_rejected_by_a_value_only_schema() -> None:
    for schema in (SimpleStringSchema(), ByteArraySchema(), json_orders()):
        with pytest.raises(UndecodableRecordError, match=r"offset 101.*it has no value"):
            VALUE_ONLY(schema).decode(batch([b'{"id":1}', None]), "t")


def test_a_row_has_the_named_fields() -> None:
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = [{"key": "h", "value": b"x"}, {"key": "h", "value": None}]
    records = batch(
        [b"v", None],
        key=pa.array([b"k", None], pa.binary()),
        topic=pa.array(["t", "t"]),
        timestamp=pa.array([1_500_000, -1_000], pa.timestamp("us", "UTC")),
        headers=pa.array([headers, None], pa.list_(pair)),
    )
    names = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
    schema = FIELDS(*names, key=SimpleStringSchema())
    first, second = schema.decode(records, "t")
    assert first == Row(
        key="k",
        value=b"v",
        topic="t",
        partition=3,
        offset=100,
        timestamp=1500,
        headers=[("h", b"x"), ("h", None)],
    )
    assert second == Row(
        key=None, value=None, topic="t", partition=3, offset=101, timestamp=-1, headers=[]
    )
    assert schema.columns() == names
    assert not schema.may_refuse_records()
    assert schema.type_info() == Types.ROW_NAMED(
        names,
        [
            Types.STRING(),
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
            Types.STRING(),
            Types.INT(),
            Types.LONG(),
            Types.LONG(),
            Types.LIST(Types.TUPLE([Types.STRING(), Types.PRIMITIVE_ARRAY(Types.BYTE())])),
        ],
    )


def test_a_row_keeps_tombstones_and_drops_ignored_parse_errors() -> None:
    schema = FIELDS("offset", "value", value=json_orders(ignore=True))
    rows = schema.decode(batch([b"{", None, b'{"id":1}']), "t")
    assert rows == [Row(offset=101, value=None), Row(offset=102, value=Row(id=1))]


@pytest.mark.parametrize("names", [(), ("values",), ("key", "key")])
def test_field_names_must_be_distinct_and_known(names: tuple[str, ...]) -> None:
    with pytest.raises(InvalidJobError, match="fields\\(\\) takes distinct names"):
        FIELDS(*names)


def test_a_schema_for_a_field_that_is_not_read_is_rejected() -> None:
    with pytest.raises(InvalidJobError, match="needs the field 'key'"):
        FIELDS("value", key=SimpleStringSchema())
