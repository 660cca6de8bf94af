"""Store entries of all kinds of state, and savepoints made of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.common import TypeInformation
from penstock.common.storage_url import Location
from penstock.common.typeinfo import MapTypeInfo
from penstock.savepoint.layout import SavedOperator
from penstock.savepoint.write import finalize_files, write_subtask
from penstock.state.key_groups import KeyGroupRange, key_group, key_group_range, routed_key
from penstock.state.keys import KeyCodec
from penstock.state.registry.meta_info import (
    MAP_STATE,
    NO_VALUE,
    RAW_STATE,
    StateMetaInfo,
    registry_key,
    table_prefix,
)
from penstock.state.savepoint_file import SavepointFile
from penstock.types.serializers import serializer_for
from penstock.types.signature import type_signature

MAX_PARALLELISM = 128
ALL = KeyGroupRange(0, MAX_PARALLELISM)

Entry = tuple[bytes, bytes]


def registered(name: str, info: StateMetaInfo) -> Entry:
    return registry_key(name), info.encode()


def state_entries(
    table: int,
    kind: str,
    type_info: TypeInformation,
    key_type: TypeInformation | None,
    values: Iterable[tuple[Any, Any]],
) -> list[Entry]:
    """Return the entries of a state, the value of each key given; a map state takes dicts."""
    codec = KeyCodec(key_type)
    entries = {}
    for key, value in values:
        encoded = codec.encode(key)
        at = table_prefix(table) + routed_key(encoded, key_group(encoded, MAX_PARALLELISM))
        if kind == RAW_STATE:
            entries[at] = value
        elif kind == MAP_STATE:
            assert isinstance(type_info, MapTypeInfo)
            map_codec, inside = KeyCodec(type_info.key), serializer_for(type_info.value)
            for map_key, item in value.items():
                data = NO_VALUE if item is None else inside.encode(item)
                entries[at + map_codec.encode(map_key)] = data
        else:
            entries[at] = serializer_for(type_info).encode(value)
    return sorted(entries.items())


def within(entries: Iterable[Entry], key_groups: KeyGroupRange) -> list[Entry]:
    """Return the registry and the entries of a range of key groups."""
    return [
        (key, value)
        for key, value in entries
        if key[:2] == b"\0\0" or int.from_bytes(key[2:4], "big") in key_groups
    ]


def save(
    directory: Location,
    entries: list[Entry],
    key_type: TypeInformation | None,
    parallelism: int = 1,
    uid: str = "count",
) -> list[SavepointFile]:
    """Write a savepoint of one operator as its subtasks would."""
    operator = SavedOperator(uid, type_signature(key_type) if key_type else "", MAX_PARALLELISM)
    files = []
    for subtask in range(parallelism):
        mine = within(entries, key_group_range(MAX_PARALLELISM, parallelism, subtask))
        files += write_subtask(iter(mine), operator, directory, subtask, f"a1-{subtask}")
    return finalize_files(directory, files)
