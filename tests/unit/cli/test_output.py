from __future__ import annotations

import pytest

from penstock.cli.output import ago, clock, duration, size, table


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KB"),
        (1536, "1.5 KB"),
        (10_000, "9.77 KB"),
        (1000 * 1024, "1000 KB"),
        (1024 * 1024 - 1, "1 MB"),
        (5 << 30, "5 GB"),
        (5000 << 40, "5000 TB"),
    ],
)
def test_sizes_are_short(number: int, shown: str) -> None:
    assert size(number) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 ms"),
        (0.0124, "12 ms"),
        (0.9996, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (3599.9, "1 h 0 min"),
        (3725, "1 h 2 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_have_their_two_largest_units(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("passed", "shown"),
    [(-5, "0 s ago"), (59.9, "59 s ago"), (60, "1 min ago"), (7200, "2 h ago"), (1e6, "11 d ago")],
)
def test_ages_have_their_largest_unit(passed: float, shown: str) -> None:
    assert ago(1e9, 1e9 + passed) == shown


def test_a_time_has_seconds() -> None:
    assert len(clock(1e9)) == len("2001-09-09 01:46:40")


def test_columns_are_aligned_and_lines_end_with_text() -> None:
    rows = [{"NAME": "a", "N": "1", "X": ""}, {"NAME": "long name", "N": "1000", "X": "y"}]
    shown = table(rows, numbers=("N",))
    assert shown.splitlines() == ["NAME          N  X", "a             1", "long name  1000  y"]
