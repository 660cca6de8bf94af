from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock.testing import VerificationResult, compare, finished_files, read_lines, verify

Row = tuple[str, int, int, str]
"""Key, position, running total, event."""

EVENTS = {"a": ["a1", "a2", "a3"], "b": ["b10", "b20"]}


def replay(key: str, events: list[str]) -> Iterable[Row]:
    total = 0
    for position, event in enumerate(events, start=1):
        total += int(event[1:])
        yield key, position, total, event


def verify_rows(rows: list[Row]) -> VerificationResult:
    return verify(
        EVENTS,
        rows,
        event_of=lambda r: r[3],
        key_of=lambda r: r[0],
        position_of=lambda r: r[1],
        replay=replay,
    )


RIGHT: list[Row] = [
    ("k", 3, 13, "a2"),
    ("k", 1, 1, "a1"),
    ("k", 2, 11, "b10"),
    ("k", 4, 33, "b20"),
    ("k", 5, 36, "a3"),
]


def test_any_interleaving_of_the_sources_is_correct() -> None:
    result = verify_rows(RIGHT)
    assert result.is_exactly_once
    assert str(result) == "5 events, 5 results; 0 lost; 0 duplicated"


def test_a_missing_event_is_lost_and_makes_later_results_wrong() -> None:
    result = verify_rows([r for r in RIGHT if r[3] != "b10"])
    assert result.lost == ("b10",)
    assert result.wrong
    assert not result.is_exactly_once


def test_an_event_that_was_never_processed_is_lost_and_nothing_else() -> None:
    result = verify_rows([r for r in RIGHT if r[3] != "a3"])
    assert result == VerificationResult(5, 4, lost=("a3",))
    assert result.is_at_most_once
    assert not result.is_at_least_once
    assert str(result) == "5 events, 4 results; 1 lost: a3; 0 duplicated"


def test_a_row_written_twice_is_a_duplicate() -> None:
    result = verify_rows([*RIGHT, RIGHT[0]])
    assert result.duplicated == ("a2",)
    assert not result.is_at_most_once


def test_an_event_that_counted_twice_in_state_is_a_duplicate() -> None:
    result = verify_rows([*RIGHT, ("k", 6, 39, "a3")])
    assert result.duplicated == ("a3",)
    assert not result.wrong


def test_a_wrong_total_is_found_even_if_nothing_is_missing() -> None:
    result = verify_rows([*RIGHT[:-1], ("k", 5, 37, "a3")])
    assert result.wrong == ("('k', 5, 37, 'a3') instead of ('k', 5, 36, 'a3')",)
    assert not result.is_at_most_once


def test_a_gap_in_the_positions_is_wrong() -> None:
    result = verify_rows([*RIGHT[:-1], ("k", 6, 36, "a3")])
    assert len(result.wrong) == 1


def test_events_of_one_source_out_of_order_are_named() -> None:
    rows: list[Row] = [
        ("k", 1, 2, "a2"),
        ("k", 2, 3, "a1"),
        ("k", 3, 6, "a3"),
        ("k", 4, 16, "b10"),
        ("k", 5, 36, "b20"),
    ]
    assert verify_rows(rows).out_of_order == ("'a1' of a after a later one, in key 'k'",)


def test_an_invented_row_is_unknown() -> None:
    result = verify_rows([*RIGHT, ("z", 1, 9, "c9")])
    assert result.unknown == (("z", 1, 9, "c9"),)
    assert not result.is_at_least_once


def test_rows_are_compared_as_often_as_they_occur() -> None:
    result = compare(["x", "x", "y", "z"], ["y", "x", "y", "w"])
    assert (result.lost, result.duplicated, result.unknown) == (("x", "z"), ("y",), ("w",))
    assert compare([1, 2], [2, 1]).is_exactly_once


def test_only_some_of_many_are_shown() -> None:
    assert str(compare(range(9), [])).endswith("9 lost: 0, 1, 2, 3, 4, …; 0 duplicated")


def test_unfinished_files_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "hour").mkdir()
    (tmp_path / "hour" / "part-1").write_text("a\nb\n")
    (tmp_path / "part-0").write_text("c\n")
    (tmp_path / ".staging-job").mkdir()
    (tmp_path / ".staging-job" / "part-2").write_text("hidden\n")
    assert [p.name for p in finished_files(tmp_path)] == ["part-1", "part-0"]
    assert read_lines(tmp_path) == ["a", "b", "c"]
