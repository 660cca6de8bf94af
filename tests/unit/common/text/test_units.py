from datetime import timedelta

import pytest

from penstock.common.text.durations import format_duration, parse_duration
from penstock.common.text.memory_sizes import format_memory_size, parse_memory_size


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("500 ms", timedelta(milliseconds=500)),
        ("500", timedelta(milliseconds=500)),
        ("1s", timedelta(seconds=1)),
        ("10 min", timedelta(minutes=10)),
        ("2 HOURS", timedelta(hours=2)),
        (" 1 d ", timedelta(days=1)),
        ("3 µs", timedelta(microseconds=3)),
        ("2500 ns", timedelta(microseconds=2)),
    ],
)
def test_durations_parse_with_flinks_units(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize("text", ["", "ms", "-1 s", "1.5 s", "1 parsec", "1 s 2 ms"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|unit"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["0 ms", "1 us", "500 ms", "90 s", "10 min", "2 d"])
def test_durations_are_formatted_in_the_largest_whole_unit(text: str) -> None:
    assert format_duration(parse_duration(text)) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [("512 mb", 512 << 20), ("1g", 1 << 30), ("7", 7), ("2 KB", 2048), ("1 tebibytes", 1 << 40)],
)
def test_memory_sizes_parse_with_flinks_units(text: str, size: int) -> None:
    assert parse_memory_size(text) == size


@pytest.mark.parametrize("text", ["", "mb", "-1 mb", "1.5 gb", "1 mib2", "1 pb"])
def test_anything_else_is_no_memory_size(text: str) -> None:
    with pytest.raises(ValueError, match="memory"):
        parse_memory_size(text)


@pytest.mark.parametrize("text", ["0 bytes", "7 bytes", "2 kb", "512 mb", "3 tb"])
def test_memory_sizes_are_formatted_in_the_largest_whole_unit(text: str) -> None:
    assert format_memory_size(parse_memory_size(text)) == text
