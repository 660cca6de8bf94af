"""How the content of a file is divided into the parts of a multipart upload."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.files.stored.upload_parts import LEAST_BYTES, Segment, divide, is_copied

MIB = 1 << 20


def check(sizes: Sequence[int], parts: Sequence[Sequence[Segment]]) -> None:
    """Check that an upload may have these parts, and that they are the whole content in order."""
    assert 1 <= len(parts) <= 10_000
    lengths = [sum(end - start for _, start, end in part) for part in parts]
    assert all(LEAST_BYTES <= length <= 5 << 30 for length in lengths[:-1])
    at = [0] * len(sizes)
    before = 0
    for source, start, end in (segment for part in parts for segment in part):
        assert source >= before
        assert start == at[source] < end
        before, at[source] = source, end
    assert at == list(sizes)


@given(st.lists(st.integers(0, 30 * MIB), max_size=30))
def test_parts_are_the_whole_content_in_order(sizes: list[int]) -> None:
    check(sizes, divide(sizes, 12 * MIB))


@pytest.mark.parametrize(
    "sizes",
    [
        [6 * MIB] * 12_000,
        [5 * MIB] * 30_000,
        [8 * MIB - 1] * 20_000,
        [1] * 50_000,
        [5 << 40],
        [6 * MIB, 3 << 40, 17, 1 << 40],
    ],
    ids=["6 MB", "5 MB", "8 MB", "1 B", "5 TB", "mixed"],
)
def test_a_file_of_any_size_and_number_of_pieces_fits_into_an_upload(sizes: list[int]) -> None:
    check(sizes, divide(sizes))


def test_pieces_of_five_megabytes_and_more_are_copied_by_the_store() -> None:
    sizes = [5 * MIB] * 100
    assert all(is_copied(part, sizes) for part in divide(sizes))
