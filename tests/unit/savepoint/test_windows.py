"""State per window in a savepoint: readable, and back again at any parallelism."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.common import Types
from penstock.datastream.window import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
)
from penstock.savepoint.read import entries_of
from penstock.state.key_groups import key_group, key_group_range, routed_key
from penstock.state.keys import KeyCodec
from penstock.state.registry.meta_info import MAP_STATE, StateMetaInfo, table_prefix
from penstock.state.window_encoding import encoding_for
from penstock.types.serializers import serializer_for
from tests.unit.savepoint.saved_states import MAX_PARALLELISM, Entry, registered, save, within
from tests.unit.state.keyed.test_window_states import GOLDEN, TextWindowSerializer

VALUE = "value state"
LONG_KEY = "k" * 300


def entries(windows: list[bytes], suffix: bytes = b"") -> list[Entry]:
    codec, value = KeyCodec(Types.STRING()), serializer_for(Types.LONG()).encode(5)
    found = []
    for key in ("a", "b", LONG_KEY):
        encoded = codec.encode(key)
        at = table_prefix(1) + routed_key(encoded, key_group(encoded, MAX_PARALLELISM))
        found += [(at + window + suffix, value) for window in windows]
    return sorted(found)


@pytest.mark.parametrize("serializer", [golden[0] for golden in GOLDEN[1:]], ids=repr)
@pytest.mark.parametrize("kind", [VALUE, MAP_STATE])
def test_states_per_window_are_restored_at_another_parallelism(
    tmp_path: Path, serializer: object, kind: str
) -> None:
    encoding = encoding_for(serializer)  # type: ignore[arg-type]
    windows = [encoding.encode(w) for s, w, _, _ in GOLDEN if type(s) is type(serializer)]
    type_text = "MAP(STRING, LONG)" if kind == MAP_STATE else "LONG"
    suffix = KeyCodec(Types.STRING()).encode("m") if kind == MAP_STATE else b""
    info = StateMetaInfo(1, kind, type_text, 0, encoding.name)
    written = [registered("n", info), *entries(windows, suffix)]
    files = save(tmp_path, written, Types.STRING(), 2)
    for subtask in range(3):
        mine = key_group_range(MAX_PARALLELISM, 3, subtask)
        assert list(entries_of(tmp_path, files, mine)) == within(written, mine)


def shown(directory: Path, windows: list[bytes], encoding: str) -> list[dict[str, object]]:
    info = StateMetaInfo(1, VALUE, "LONG", 0, encoding)
    save(directory, [registered("n", info), *entries(windows)], Types.STRING())
    table = pq.read_table(directory / "count" / "n")
    rows = [row for row in table.to_pylist() if row["key"] == "a"]
    return [{k: v for k, v in row.items() if not k.startswith("key_")} for row in rows]


def test_windows_are_columns_to_look_at(tmp_path: Path) -> None:
    time = encoding_for(TimeWindowSerializer()).encode(TimeWindow(-5, 10))
    assert shown(tmp_path / "time", [time], "time") == [
        {"key": "a", "window_start": -5, "window_end": 10, "value": 5, "window_bytes": time}
    ]
    count = encoding_for(CountWindowSerializer()).encode(CountWindow(3))
    assert shown(tmp_path / "count", [count], "count") == [
        {"key": "a", "window": 3, "value": 5, "window_bytes": count}
    ]
    whole = encoding_for(GlobalWindowSerializer()).encode(GlobalWindow.get())
    assert shown(tmp_path / "global", [whole], "global") == [
        {"key": "a", "value": 5, "window_bytes": whole}
    ]
    text = encoding_for(TextWindowSerializer()).encode("x")
    assert shown(tmp_path / "custom", [text], "custom") == [
        {"key": "a", "value": 5, "window_bytes": text}
    ]
