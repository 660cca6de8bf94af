import decimal
import json
from datetime import UTC, date, datetime, time
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row, Types
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from penstock.errors import ConnectorError, InvalidJobError

ORDER = Types.ROW_NAMED(
    ["id", "name", "price", "tags"],
    [Types.INT(), Types.STRING(), Types.DOUBLE(), Types.LIST(Types.STRING())],
)


def reader(type_info: TypeInformation, **flags: bool) -> JsonRowDeserializationSchema:
    builder = JsonRowDeserializationSchema.builder().type_info(type_info)
    for flag in flags:
        getattr(builder, flag)()
    return builder.build()


def one(type_info: TypeInformation, text: str) -> Any:
    row = reader(Types.ROW_NAMED(["x"], [type_info])).deserialize(f'{{"x":{text}}}'.encode())
    return row.x


def written(type_info: TypeInformation, value: Any) -> Any:
    schema = JsonRowSerializationSchema.builder().with_type_info(
        Types.ROW_NAMED(["x"], [type_info])
    )
    return schema.build().serialize(Row(value)).decode()


def test_fields_are_found_by_name() -> None:
    message = b'{"tags":["a",null],"price":2,"more":{},"id":1,"name":"x"}'
    row = reader(ORDER).deserialize(message)
    assert row == Row(id=1, name="x", price=2.0, tags=["a", None])
    assert isinstance(row.price, float)


def test_missing_fields_are_none_unless_configured_to_fail() -> None:
    message = b'{"id":1,"name":null,"price":1.5}'
    assert reader(ORDER).deserialize(message) == Row(id=1, name=None, price=1.5, tags=None)
    with pytest.raises(ConnectorError, match="Could not find field with name 'tags'"):
        reader(ORDER, fail_on_missing_field=True).deserialize(message)


@pytest.mark.parametrize(
    ("type_info", "text", "value"),
    [
        (Types.INT(), '" 12 "', 12),
        (Types.INT(), "1.9", 1),
        (Types.LONG(), '"-7"', -7),
        (Types.SHORT(), '"300"', 300),
        (Types.STRING(), "1.0", "1.0"),
        (Types.STRING(), "true", "true"),
        (Types.STRING(), '{"a":[1]}', '{"a":[1]}'),
        (Types.BOOLEAN(), '"TRUE"', True),
        (Types.BOOLEAN(), "1", False),
        (Types.DOUBLE(), '"2.5"', 2.5),
        (Types.FLOAT(), "0.1", 0.10000000149011612),
        (Types.BIG_DEC(), "1.10", decimal.Decimal("1.10")),
        (Types.BIG_DEC(), '"1.10"', decimal.Decimal("1.10")),
        (Types.BIG_INT(), "123456789012345678901234567890", 123456789012345678901234567890),
        (Types.SQL_DATE(), '"2026-01-31"', date(2026, 1, 31)),
        (Types.SQL_TIME(), '"12:30:00Z"', time(12, 30)),
        (
            Types.SQL_TIMESTAMP(),
            '"2026-01-31T12:30:00.5Z"',
            datetime(2026, 1, 31, 12, 30, 0, 500000, UTC).replace(tzinfo=None),
        ),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), '"AQI="', b"\x01\x02"),
        (Types.OBJECT_ARRAY(Types.INT()), '[1,"2",null]', [1, 2, None]),
        (Types.MAP(Types.STRING(), Types.INT()), '{"a":1,"b":"2"}', {"a": 1, "b": 2}),
        (Types.MAP(Types.INT(), Types.INT()), '{"1":1}', {1: 1}),
        (Types.ROW_NAMED(["y"], [Types.INT()]), '{"y":"3"}', Row(y=3)),
        (Types.INT(), "null", None),
    ],
)
def test_values_are_converted_to_the_declared_type(
    type_info: TypeInformation, text: str, value: Any
) -> None:
    assert one(type_info, text) == value


@pytest.mark.parametrize(
    ("type_info", "text", "value"),
    [
        (Types.BIG_DEC(), "12345678901234567890.123456789", "12345678901234567890.123456789"),
        (Types.BIG_DEC(), "0.10", "0.10"),
        (Types.BIG_DEC(), "1e400", "1E+400"),
        (Types.BIG_DEC(), "12345678901234567890123", "12345678901234567890123"),
        (Types.BIG_DEC(), '" 1.10 "', "1.10"),
        (Types.LIST(Types.BIG_DEC()), "[0.1000000000000000000001]", "0.1000000000000000000001"),
        (Types.MAP(Types.STRING(), Types.BIG_DEC()), '{"a":1.00}', "1.00"),
        (Types.ROW_NAMED(["y"], [Types.BIG_DEC()]), '{"y":1.00}', "1.00"),
    ],
)
def test_a_decimal_number_keeps_its_digits_whatever_else_a_message_holds(
    type_info: TypeInformation, text: str, value: str
) -> None:
    row_type = Types.ROW_NAMED(["x", "n"], [type_info, Types.INT()])
    for other in ("1", '"1"', "1.9"):
        found = reader(row_type).deserialize(f'{{"x":{text},"n":{other}}}'.encode())
        number = found.x
        if isinstance(number, list | Row):
            number = number[0]
        elif isinstance(number, dict):
            number = number["a"]
        assert (str(number), found.n) == (value, 1)


def test_beside_a_decimal_number_others_are_read_as_without_it() -> None:
    kinds = [Types.STRING(), Types.DOUBLE(), Types.FLOAT(), Types.LONG(), Types.STRING()]
    names = ["s", "d", "f", "l", "o"]
    message = b'{"s":1.10,"d":"2.5","f":0.1,"l":1.9,"o":{"a":[1.5]},"x":1.0}'
    without = reader(Types.ROW_NAMED(names, kinds)).deserialize(message)
    beside = reader(Types.ROW_NAMED([*names, "x"], [*kinds, Types.BIG_DEC()])).deserialize(message)
    assert list(beside)[:-1] == list(without) == ["1.1", 2.5, 0.10000000149011612, 1, '{"a":[1.5]}']
    with pytest.raises(ConnectorError, match="out of range"):
        reader(Types.ROW_NAMED(["x", "d"], [Types.BIG_DEC(), Types.DOUBLE()])).deserialize(
            b'{"x":1.0,"d":1e400}'
        )


@pytest.mark.parametrize(
    ("type_info", "text"),
    [
        (Types.INT(), "2147483648"),
        (Types.BYTE(), "128"),
        (Types.BYTE(), "1.0"),
        (Types.INT(), '"1_0"'),
        (Types.DOUBLE(), '"x"'),
        (Types.BIG_DEC(), '"NaN"'),
        (Types.SQL_TIME(), '"12:30:00+02:00"'),
        (Types.SQL_TIMESTAMP(), '"2026-01-31T12:30:00+02:00"'),
        (Types.LIST(Types.INT()), '{"a":1}'),
        (Types.ROW_NAMED(["y"], [Types.INT()]), "[1]"),
    ],
)
def test_values_of_another_type_are_rejected_or_none(type_info: TypeInformation, text: str) -> None:
    with pytest.raises(ConnectorError, match="Failed to deserialize JSON"):
        one(type_info, text)
    row_type = Types.ROW_NAMED(["x", "n"], [type_info, Types.INT()])
    lenient = reader(row_type, ignore_parse_errors=True)
    assert lenient.deserialize(f'{{"x":{text},"n":1}}'.encode()) == Row(x=None, n=1)


@pytest.mark.parametrize("message", [b"", b"{", b"[]", b"1", b"\xff", b'{"id":1} x'])
def test_other_json_than_objects_is_rejected_or_skipped(message: bytes) -> None:
    with pytest.raises(ConnectorError):
        reader(ORDER).deserialize(message)
    assert reader(ORDER, ignore_parse_errors=True).deserialize(message) is None


orders = st.builds(
    lambda i, n, p, t: Row(id=i, name=n, price=p, tags=t),
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.none() | st.text(),
    st.none() | st.floats(allow_nan=False),
    st.none() | st.lists(st.none() | st.text()),
)


@given(orders)
def test_rows_are_read_as_written(row: Row) -> None:
    schema = JsonRowSerializationSchema.builder().with_type_info(ORDER).build()
    message = schema.serialize(row)
    assert list(json.loads(message)) == ["id", "name", "price", "tags"]
    assert reader(ORDER).deserialize(message) == row


def test_numbers_are_written_as_java_writes_them() -> None:
    assert written(Types.FLOAT(), 0.1) == '{"x":0.1}'
    assert written(Types.DOUBLE(), float("nan")) == '{"x":"NaN"}'
    assert written(Types.BIG_DEC(), decimal.Decimal("1.10")) == '{"x":1.10}'
    assert written(Types.BIG_INT(), 10**30) == f'{{"x":{10**30}}}'
    assert written(Types.SQL_TIME(), time(12, 30)) == '{"x":"12:30:00Z"}'
    assert written(Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x01\x02") == '{"x":"AQI="}'


def test_values_of_another_type_are_rejected() -> None:
    schema = JsonRowSerializationSchema.builder().with_type_info(ORDER).build()
    for row in (Row(1, 2, 3.0, []), Row("1", "a", 3.0, []), Row(1), Row(True, "a", 3.0, None)):
        with pytest.raises(ConnectorError, match="Could not serialize row"):
            schema.serialize(row)


def test_a_json_schema_names_the_fields() -> None:
    text = json.dumps(
        {
            "type": "object",
            "properties": {
                "n": {"type": ["integer", "null"]},
                "when": {"type": "string", "format": "date-time"},
                "raw": {"type": "string", "contentEncoding": "base64"},
                "list": {"type": "array", "items": {"$ref": "#/definitions/item"}},
                "maybe": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
            },
            "definitions": {"item": {"type": "object", "properties": {"s": {"type": "string"}}}},
        }
    )
    schema = JsonRowDeserializationSchema.builder().json_schema(text).build()
    assert schema.get_produced_type() == Types.ROW_NAMED(
        ["n", "when", "raw", "list", "maybe"],
        [
            Types.BIG_DEC(),
            Types.SQL_TIMESTAMP(),
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
            Types.OBJECT_ARRAY(Types.ROW_NAMED(["s"], [Types.STRING()])),
            Types.BOOLEAN(),
        ],
    )


@pytest.mark.parametrize(
    "text", ["{", '{"type":"string"}', '{"anyOf":[]}', '{"type":["string","number"]}', "[]"]
)
def test_other_json_schemas_are_rejected(text: str) -> None:
    with pytest.raises(InvalidJobError):
        JsonRowDeserializationSchema.builder().json_schema(text)


def test_types_without_json_values_are_rejected_by_the_builder() -> None:
    for kind in (Types.INSTANT(), Types.PICKLED_BYTE_ARRAY(), Types.TUPLE([Types.INT()])):
        with pytest.raises(InvalidJobError, match="JSON has no values of type"):
            reader(Types.ROW_NAMED(["x"], [kind]))
    with pytest.raises(InvalidJobError, match="Row type"):
        reader(Types.STRING())
    with pytest.raises(TypeError, match="Typeinfo"):
        JsonRowSerializationSchema.builder().build()


def test_schemas_can_be_shipped_to_tasks() -> None:
    twin = cloudpickle.loads(cloudpickle.dumps(reader(ORDER)))
    assert twin.deserialize(b'{"id":1}').id == 1
    writer = JsonRowSerializationSchema.builder().with_type_info(ORDER).build()
    row = Row(1, "a", 1.5, [])
    assert cloudpickle.loads(cloudpickle.dumps(writer)).serialize(row) == writer.serialize(row)
