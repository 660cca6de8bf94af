from __future__ import annotations

import pytest
from benchmarks.contract import WrongResultError
from benchmarks.nexmark.reference import Row, expected, verify


def person(time: int, number: int, name: str, state: str) -> str:
    return f"P,{time},{number},{name},e@x,0000,Bend,{state},-"


def auction(time: int, number: int, seller: int, category: int = 10) -> str:
    return f"A,{time},{number},item,text,1,2,{time + 9},{seller},{category},-"


def bid(time: int, of: int, by: int, price: int) -> str:
    return f"B,{time},{of},{by},{price},Apple,url,-"


def row(time: int, price: int, of: int, by: int) -> Row:
    return time, price, of, by, "Apple", "url", "-"


CASES: dict[str, tuple[str, list[str], list[Row]]] = {
    "prices-are-converted": (
        "q1",
        [bid(5, 1, 2, 1000), person(5, 1, "Ann", "OR")],
        [(1, 5, 2, 908.0)],
    ),
    "every-123rd-auction-is-selected": (
        "q2",
        [bid(5, 246, 2, 7), bid(6, 247, 2, 8)],
        [(246, 7)],
    ),
    "a-person-meets-its-auctions-whichever-comes-first": (
        "q3",
        [
            auction(1, 50, seller=1),
            person(2, 1, "Ann", "OR"),
            person(2, 2, "Bob", "WA"),
            auction(3, 51, seller=1),
            auction(3, 52, seller=1, category=11),
            auction(3, 53, seller=2),
        ],
        [("Ann", "Bend", "OR", 50), ("Ann", "Bend", "OR", 51)],
    ),
    "the-hottest-auction-of-each-window-with-the-lower-id-of-two": (
        "q5",
        [bid(11_000, 7, 1, 1), bid(11_500, 8, 1, 1), bid(12_000, 8, 1, 1)],
        [
            (12_000, 7, 1),
            (14_000, 8, 2),
            (16_000, 8, 2),
            (18_000, 8, 2),
            (20_000, 8, 2),
            (22_000, 8, 1),
        ],
    ),
    "the-highest-bid-of-each-ten-seconds": (
        "q7",
        [bid(9_999, 1, 2, 50), bid(10_000, 1, 2, 70), bid(19_999, 3, 4, 70), bid(15_000, 1, 1, 9)],
        [(50, 9_999, 1, 2), (70, 19_999, 3, 4)],
    ),
    "a-new-person-that-sells-within-the-same-window-is-reported-once": (
        "q8",
        [
            person(10_500, 1, "Ann", "WA"),
            person(10_500, 2, "Bob", "WA"),
            auction(19_999, 50, seller=1),
            auction(19_000, 51, seller=1),
            auction(20_000, 52, seller=2),
        ],
        [(1, "Ann", 10_000)],
    ),
    "a-session-goes-on-for-ten-seconds-and-no-longer": (
        "q11",
        [bid(1_000, 1, 5, 1), bid(21_001, 1, 5, 1), bid(11_000, 1, 5, 1), bid(1_000, 1, 6, 1)],
        [(5, 2, 1_000, 21_000), (5, 1, 21_001, 31_001), (6, 1, 1_000, 11_000)],
    ),
    "the-last-bid-of-a-bidder-for-an-auction-stands": (
        "q18",
        [bid(3, 1, 5, 10), bid(2, 1, 5, 99), bid(3, 1, 5, 11), bid(1, 2, 5, 7)],
        [row(1, 7, 2, 5), row(3, 11, 1, 5)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_reference_answers_as_computed_by_hand(case: str) -> None:
    query, lines, rows = CASES[case]
    assert expected(query, lines) == sorted(rows)


def test_an_answer_is_correct_in_any_order_and_as_lists() -> None:
    query, lines, rows = CASES["a-session-goes-on-for-ten-seconds-and-no-longer"]
    verify(query, [list(one) for one in reversed(rows)], lines)


def test_outbid_bids_are_not_part_of_the_answer() -> None:
    query, lines, rows = CASES["the-last-bid-of-a-bidder-for-an-auction-stands"]
    verify(query, [row(2, 99, 1, 5), *rows], lines)


@pytest.mark.parametrize("wrong", ["missing", "twice", "changed"])
def test_a_wrong_answer_is_refused(wrong: str) -> None:
    query, lines, rows = CASES["the-highest-bid-of-each-ten-seconds"]
    answers = {"missing": rows[1:], "twice": [*rows, rows[0]], "changed": [rows[0], (1, 2, 3, 4)]}
    with pytest.raises(WrongResultError, match="q7"):
        verify(query, answers[wrong], lines)
