import pytest

from penstock.state.key_groups import (
    KeyGroupRange,
    default_max_parallelism,
    key_group,
    key_group_range,
    key_of,
    routed_key,
    subtask_of,
)
from penstock.state.keys import KeyCodec

GOLDEN_GROUPS = {"a": 17, "user-42": 127, 1: 31, None: 20, ("a", 1): 4}


@pytest.mark.parametrize("key", GOLDEN_GROUPS)
def test_key_groups_never_change(key: object) -> None:
    assert key_group(KeyCodec().encode(key), 128) == GOLDEN_GROUPS[key]


@pytest.mark.parametrize("parallelism", [2, 3, 4])
def test_a_few_small_numbers_reach_every_subtask(parallelism: int) -> None:
    groups = [key_group(KeyCodec().encode(n), 128) for n in range(10 * parallelism)]
    owners = [subtask_of(group, 128, parallelism) for group in groups]
    assert min(owners.count(i) for i in range(parallelism)) >= 4


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [(1, 128), (85, 128), (86, 256), (170, 256), (171, 256), (172, 512), (30_000, 32_768)],
)
def test_default_max_parallelism_is_flinks(parallelism: int, expected: int) -> None:
    assert default_max_parallelism(parallelism) == expected


@pytest.mark.parametrize(("groups", "parallelism"), [(128, 1), (128, 3), (128, 7), (5, 5), (7, 4)])
def test_ranges_cover_every_group_once_and_agree_with_the_owner(
    groups: int, parallelism: int
) -> None:
    owners = [
        (group, index)
        for index in range(parallelism)
        for group in key_group_range(groups, parallelism, index)
    ]
    assert owners == [(group, subtask_of(group, groups, parallelism)) for group in range(groups)]


def test_a_range_knows_its_groups() -> None:
    groups = KeyGroupRange(3, 5)
    assert list(groups) == [3, 4]
    assert len(groups) == 2
    assert 3 in groups
    assert 5 not in groups


def test_routed_keys_never_change() -> None:
    assert routed_key(b"abc", 258).hex() == "0102" + "03" + "616263"
    assert routed_key(b"x" * 255, 1).hex() == "0001" + "ff000000ff" + "78" * 255


@pytest.mark.parametrize("length", [0, 1, 254, 255, 70_000])
def test_a_routed_key_says_where_it_ends(length: int) -> None:
    key = b"k" * length
    stored = routed_key(key, 7) + b"user key"
    assert key_of(stored) == key
