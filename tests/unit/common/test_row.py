import pickle

import pytest

from penstock.common import Row, RowKind
from penstock.common.row import rows_of


def test_named_row_reads_by_index_name_and_attribute() -> None:
    row = Row(name="Alice", age=11)
    assert (row[0], row["age"], row.name) == ("Alice", 11, "Alice")
    assert list(row) == ["Alice", 11]
    assert len(row) == 2


def test_template_makes_rows_with_its_values_as_names() -> None:
    person = Row("name", "age")
    assert repr(person) == "<Row('name', 'age')>"
    assert person("Alice", 11) == Row(name="Alice", age=11)
    with pytest.raises(ValueError, match="2 values"):
        person("Alice", 11, 12)


def test_template_keeps_its_row_kind() -> None:
    person = Row("name")
    person.set_row_kind(RowKind.DELETE)
    assert person("Alice").get_row_kind() is RowKind.DELETE


def test_repr_and_str_are_pyflinks() -> None:
    assert repr(Row(a="x", b=None)) == "Row(a='x', b=None)"
    assert str(Row("x", 1)) == "<Row('x', 1)>"
    assert repr(Row()) == "<Row()>"


def test_positional_and_named_values_do_not_mix() -> None:
    with pytest.raises(ValueError, match="not both"):
        Row(1, a=2)


def test_values_are_set_in_brackets_but_not_as_attributes() -> None:
    row = Row(a=1, b=2)
    row["a"] = 10
    row[1] = 20
    assert row == Row(a=10, b=20)
    with pytest.raises(AttributeError):
        row.a = 3  # type: ignore[attr-defined]


def test_missing_fields_raise_what_pyflink_raises() -> None:
    row = Row(a=1)
    with pytest.raises(ValueError, match="b"):
        row["b"]
    with pytest.raises(AttributeError):
        _ = row.b
    with pytest.raises(AttributeError):
        _ = Row(1).a
    with pytest.raises(KeyError):
        Row(1)["a"] = 2


def test_named_rows_are_equal_in_any_field_order_and_hash_alike() -> None:
    assert Row(a=1, b=2) == Row(b=2, a=1)
    assert hash(Row(a=1, b=2)) == hash(Row(b=2, a=1))


def test_names_and_kind_are_part_of_equality() -> None:
    assert Row(1) != Row(a=1)
    assert Row(1) != Row.of_kind(RowKind.DELETE, 1)
    assert Row(1) != (1,)


def test_contains_looks_at_names_where_there_are_names() -> None:
    assert "a" in Row(a=1)
    assert 1 not in Row(a=1)
    assert 1 in Row(1)


def test_as_dict_converts_nested_rows_only_when_asked() -> None:
    row = Row(key=1, value=[Row(a=2)], more={"x": Row(b=3)})
    assert row.as_dict() == {"key": 1, "value": [Row(a=2)], "more": {"x": Row(b=3)}}
    assert row.as_dict(True) == {"key": 1, "value": [{"a": 2}], "more": {"x": {"b": 3}}}
    with pytest.raises(TypeError):
        Row(1).as_dict()


def test_fields_by_names_reorder_named_rows() -> None:
    assert Row(a=1, b=2).get_fields_by_names(["b", "a"]) == [2, 1]
    assert Row(1, 2).get_fields_by_names(["b", "a"]) == [1, 2]
    with pytest.raises(ValueError, match="c"):
        Row(a=1).get_fields_by_names(["c"])


def test_field_names_can_be_given_later() -> None:
    row = Row(1, 2)
    row.set_field_names(["a", "b"])
    assert row == Row(a=1, b=2)


@pytest.mark.parametrize("row", [Row(1, "x"), Row(a=1), Row.of_kind(RowKind.UPDATE_AFTER, a=1)])
def test_rows_pickle(row: Row) -> None:
    assert pickle.loads(pickle.dumps(row)) == row


def test_row_kinds_print_as_symbols() -> None:
    assert [str(kind) for kind in RowKind] == ["+I", "-U", "+U", "-D"]


def test_rows_of_columns_are_those_made_one_by_one() -> None:
    rows = rows_of(["a", "b"], [[1, None], ["x", "y"]])
    assert rows == [Row(a=1, b="x"), Row(a=None, b="y")]
    rows[0].set_field_names(["c", "d"])
    rows[0]["c"] = 5
    assert rows == [Row(c=5, d="x"), Row(a=None, b="y")]
    assert rows_of(["a"], [[]]) == []
