from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.kafka.source.split_assignment import fair_shares

backlogs = st.dictionaries(st.integers(0, 9), st.integers(0, 1000), max_size=8)


@given(backlogs, st.integers(1, 2000))
def test_shares_exceed_neither_the_backlog_nor_the_limit(
    waiting: dict[int, int], most: int
) -> None:
    shares = fair_shares(waiting, most)
    busy = [key for key, count in waiting.items() if count]
    assert all(0 < shares[key] <= waiting[key] for key in shares)
    assert sum(shares.values()) <= max(most, len(busy))
    assert sum(shares.values()) >= min(most, sum(waiting.values()))


@given(backlogs, st.integers(1, 2000))
def test_no_partition_starves(waiting: dict[int, int], most: int) -> None:
    assert fair_shares(waiting, most).keys() == {key for key, count in waiting.items() if count}


@given(backlogs, st.integers(8, 2000))
def test_only_an_exhausted_backlog_gets_less_than_another(
    waiting: dict[int, int], most: int
) -> None:
    shares = fair_shares(waiting, most)
    largest = max(shares.values(), default=0)
    assert all(count == waiting[key] or count >= largest - 1 for key, count in shares.items())


def test_short_backlogs_leave_their_share_to_long_ones() -> None:
    assert fair_shares({"a": 10, "b": 1000, "c": 400}, 500) == {"a": 10, "b": 245, "c": 245}
