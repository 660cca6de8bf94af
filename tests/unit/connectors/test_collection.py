import pytest

from penstock.common import Types
from penstock.connectors.collection import CollectionSource
from penstock.connectors.sequence import NumberSequenceSource
from penstock.connectors.source import SplitRange


def test_a_collection_is_taken_as_it_was_when_the_source_was_made() -> None:
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


def test_a_sequence_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(ValueError, match="got 2 and 1"):
        NumberSequenceSource(2, 1)
