import copy
import pickle

import pytest

from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types, is_immutable

REPRS: list[tuple[TypeInformation, str]] = [
    (Types.STRING(), "String"),
    (Types.BYTE(), "Byte"),
    (Types.BOOLEAN(), "Boolean"),
    (Types.SHORT(), "Short"),
    (Types.INT(), "Integer"),
    (Types.LONG(), "Long"),
    (Types.FLOAT(), "Float"),
    (Types.DOUBLE(), "Double"),
    (Types.CHAR(), "Char"),
    (Types.BIG_INT(), "BigInteger"),
    (Types.BIG_DEC(), "BigDecimal"),
    (Types.INSTANT(), "Instant"),
    (Types.SQL_DATE(), "DateTypeInfo"),
    (Types.SQL_TIME(), "TimeTypeInfo"),
    (Types.SQL_TIMESTAMP(), "TimestampTypeInfo"),
    (Types.PICKLED_BYTE_ARRAY(), "PickledByteArrayTypeInfo"),
    (Types.ROW([Types.STRING(), Types.INT()]), "RowTypeInfo(String, Integer)"),
    (Types.ROW_NAMED(["a"], [Types.LIST(Types.INT())]), "RowTypeInfo(a: ListTypeInfo<Integer>)"),
    (Types.TUPLE([Types.STRING(), Types.INT()]), "TupleTypeInfo(String, Integer)"),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), "PrimitiveArrayTypeInfo<Byte>"),
    (Types.BASIC_ARRAY(Types.STRING()), "BasicArrayTypeInfo<String>"),
    (Types.OBJECT_ARRAY(Types.SQL_DATE()), "ObjectArrayTypeInfo<DateTypeInfo>"),
    (Types.MAP(Types.STRING(), Types.INT()), "MapTypeInfo<String, Integer>"),
    (Types.LIST(Types.STRING()), "ListTypeInfo<String>"),
]


@pytest.mark.parametrize(("type_info", "text"), REPRS)
def test_types_print_as_pyflink_prints_them(type_info: TypeInformation, text: str) -> None:
    assert repr(type_info) == text


@pytest.mark.parametrize("type_info", [pair[0] for pair in REPRS])
def test_types_are_values(type_info: TypeInformation) -> None:
    twin = pickle.loads(pickle.dumps(type_info))
    assert twin == type_info == copy.deepcopy(type_info)
    assert hash(twin) == hash(type_info)


def test_no_two_types_are_equal() -> None:
    assert len({pair[0] for pair in REPRS}) == len(REPRS)


def test_row_fields_are_called_f0_and_so_on_unless_named() -> None:
    assert Types.ROW([Types.INT(), Types.INT()]).get_field_names() == ["f0", "f1"]
    named = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    assert named.get_field_names() == ["a", "b"]
    assert named.get_field_types() == [Types.INT(), Types.STRING()]
    assert named.get_field_index("b") == 1


def test_row_type_refuses_names_that_do_not_match_its_fields() -> None:
    with pytest.raises(ValueError, match="one name per field"):
        Types.ROW_NAMED(["a"], [Types.INT(), Types.INT()])
    with pytest.raises(ValueError, match="distinct"):
        Types.ROW_NAMED(["a", "a"], [Types.INT(), Types.INT()])


def test_row_type_takes_lists_and_stays_hashable() -> None:
    given = RowTypeInfo([Types.INT()], ["a"])  # type: ignore[arg-type]
    assert hash(given) == hash(Types.ROW_NAMED(["a"], [Types.INT()]))


def test_arrays_refuse_elements_flink_refuses() -> None:
    with pytest.raises(TypeError, match="String"):
        Types.PRIMITIVE_ARRAY(Types.STRING())
    with pytest.raises(TypeError, match="BigDecimal"):
        Types.BASIC_ARRAY(Types.BIG_DEC())


def test_single_values_and_tuples_of_them_are_immutable() -> None:
    assert is_immutable(Types.STRING())
    assert is_immutable(Types.SQL_TIMESTAMP())
    assert is_immutable(Types.TUPLE([Types.INT(), Types.TUPLE([Types.INSTANT()])]))


@pytest.mark.parametrize(
    "type_info",
    [
        Types.ROW([Types.INT()]),
        Types.LIST(Types.INT()),
        Types.MAP(Types.INT(), Types.INT()),
        Types.PRIMITIVE_ARRAY(Types.INT()),
        Types.BASIC_ARRAY(Types.INT()),
        Types.OBJECT_ARRAY(Types.STRING()),
        Types.PICKLED_BYTE_ARRAY(),
        Types.TUPLE([Types.INT(), Types.LIST(Types.INT())]),
    ],
)
def test_containers_and_pickled_objects_are_not_immutable(type_info: TypeInformation) -> None:
    assert not is_immutable(type_info)
