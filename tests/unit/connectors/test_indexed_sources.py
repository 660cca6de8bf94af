import pytest

from penstock.common import Row, Types
from penstock.connectors.contracts.source import SplitRange
from penstock.connectors.indexed_sources import CollectionSource, NumberSequenceSource
from penstock.errors import TypeMismatchError


def test_later_changes_of_a_collection_do_not_change_the_source() -> None:
    elements = [[1], [2]]
    source = CollectionSource(elements)
    elements[0].append(99)
    assert list(source.read(SplitRange("0", 0, 2))) == [[[1], [2]]]


def test_a_value_read_twice_is_not_shared() -> None:
    source = CollectionSource([[1]])
    (first,) = source.read_lists(SplitRange("0", 0, 1))
    first[0].append(99)
    assert list(source.read(SplitRange("0", 0, 1))) == [[[1]]]


def test_a_collection_is_read_by_one_subtask_and_knows_its_type() -> None:
    source = CollectionSource(iter([1]), Types.INT())
    assert source.default_parallelism() == 1
    assert source.type_info() == Types.INT()
    assert CollectionSource([]).type_info() is None


def test_a_sequence_holds_longs_up_to_its_end() -> None:
    source = NumberSequenceSource(5, 5)
    assert list(source.read(SplitRange("0", 0, 1))) == [[5]]
    assert source.type_info() == Types.LONG()
    assert source.default_parallelism() is None


def test_a_sequence_that_ends_before_it_starts_is_rejected() -> None:
    with pytest.raises(ValueError, match="got 2 and 1"):
        NumberSequenceSource(2, 1)


def test_typed_elements_take_the_form_of_their_type() -> None:
    people = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
    (rows,) = CollectionSource([("Ada", 36)], people).read_lists(SplitRange("0", 0, 1))
    assert rows == [Row(name="Ada", age=36)]
    (floats,) = CollectionSource([0.1, 1], Types.FLOAT()).read_lists(SplitRange("0", 0, 2))
    assert floats == [0.10000000149011612, 1.0]


def test_a_list_is_accepted_for_a_declared_tuple() -> None:
    pair = Types.TUPLE([Types.STRING(), Types.INT()])
    (tuples,) = CollectionSource([["a", 1]], pair).read_lists(SplitRange("0", 0, 1))
    assert tuples == [("a", 1)]
    with pytest.raises(TypeMismatchError, match=r"field '\[0\]' does not match"):
        CollectionSource([["a"]], pair)


def test_an_element_of_another_type_is_rejected_with_its_index() -> None:
    pair = Types.TUPLE([Types.STRING(), Types.INT()])
    with pytest.raises(TypeMismatchError) as caught:
        CollectionSource([("a", 1), ("b", "two")], pair)
    assert str(caught.value) == (
        "field '[1].f1' does not match its declared type Integer; got 'two'"
    )
