"""docs/savepoints.md says what a reader finds."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import Row, Types
from penstock.savepoint.columns import column_of
from penstock.state.registry.meta_info import MAP_STATE, StateMetaInfo
from penstock.state.savepoint_file import SavepointFile
from penstock.types.signature import parse_signature, type_signature
from tests.unit.savepoint.saved_states import registered, save, state_entries

PAGE = (Path(__file__).parents[3] / "docs" / "savepoints.md").read_text()


def save_state(
    directory: Path, name: str, kind: str, type_text: str, values: list[object]
) -> list[SavepointFile]:
    type_info = parse_signature(type_text)
    pairs = [(f"k{number}", value) for number, value in enumerate(values)]
    entries = state_entries(1, kind, type_info, Types.STRING(), pairs)
    info = StateMetaInfo(1, kind, type_text)
    return save(directory, [registered(name, info), *entries], Types.STRING(), parallelism=2)


def test_the_program_that_looks_into_a_savepoint_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_state(tmp_path / "savepoint-7", "seen", "value state", "LONG", [5, 6, 7])
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(program, {})
    rows = [{"key": f"k{n}", "value": 5 + n} for n in range(3)]
    assert capsys.readouterr().out == f"{rows}\nb'LONG'\n"


def test_pandas_reads_a_states_directory(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    save_state(tmp_path, "seen", "value state", "LONG", [5, 6, 7])
    table = pandas.read_parquet(tmp_path / "count" / "seen", columns=["key", "value"])
    assert dict(zip(table["key"], table["value"], strict=True)) == {"k0": 5, "k1": 6, "k2": 7}


def test_the_columns_are_those_of_the_page(tmp_path: Path) -> None:
    listed = re.findall(r"^\| `(\w+)` \| (?:uint16|by |binary)", PAGE, re.MULTILINE)
    files = save_state(tmp_path, "m", MAP_STATE, "MAP(STRING, LONG)", [{"a": 1, "b": None}])
    table = pq.read_table(tmp_path / "count" / "m")
    assert sorted(table.column_names) == sorted(listed)
    assert table.select(["key", "map_key", "value"]).to_pylist() == [
        {"key": "k0", "map_key": "a", "value": 1},
        {"key": "k0", "map_key": "b", "value": None},
    ]
    assert pa.types.is_uint16(table.schema.field("key_group").type)
    assert files[0].path == "count/m/part-0.parquet"


def test_a_file_says_of_itself_what_the_page_lists(tmp_path: Path) -> None:
    (file, _) = save_state(tmp_path, "seen", "list state", "LIST(LONG)", [[1]])
    found = pq.read_schema(tmp_path / file.path).metadata
    mine = {key.decode() for key in found if key.startswith(b"penstock.")}
    assert mine == set(re.findall(r"`(penstock\.\w+)`", PAGE))
    assert found[b"penstock.kind"] == b"list state"
    assert found[b"penstock.key_type"] == b"STRING"


@pytest.mark.parametrize(
    ("type_text", "arrow"),
    [
        ("BIG_INT", pa.string()),
        ("SQL_TIME", pa.time64("us")),
        ("INSTANT", pa.struct([("seconds", pa.int64()), ("nanos", pa.int64())])),
        ("TUPLE(LONG, STRING)", pa.struct([("f0", pa.int64()), ("f1", pa.string())])),
        ("ROW(n: INT)", pa.struct([("_kind", pa.string()), ("n", pa.int32())])),
        ("PRIMITIVE_ARRAY(BYTE)", pa.binary()),
        ("BASIC_ARRAY(STRING)", pa.list_(pa.string())),
        ("MAP(STRING, DOUBLE)", pa.map_(pa.string(), pa.float64())),
        ("PICKLED_BYTE_ARRAY", pa.binary()),
    ],
)
def test_a_type_has_the_column_it_always_had(type_text: str, arrow: pa.DataType) -> None:
    assert column_of(parse_signature(type_text)).arrow == arrow
    assert type_signature(parse_signature(type_text)) == type_text


def test_rows_are_structs_with_their_field_names(tmp_path: Path) -> None:
    row = Row(name="a", n=1)
    save_state(tmp_path, "r", "value state", "ROW(name: STRING, n: LONG)", [row])
    assert pq.read_table(tmp_path / "count" / "r")["value"].to_pylist() == [
        {"_kind": None, "name": "a", "n": 1}
    ]


def test_keys_without_a_type_are_shown_as_text(tmp_path: Path) -> None:
    keys = ["plain", 7, ("a", None), b"x"]
    entries = state_entries(1, "value state", Types.INT(), None, ((key, 1) for key in keys))
    save(tmp_path, [registered("n", StateMetaInfo(1, "value state", "INT")), *entries], None)
    found = pq.read_table(tmp_path / "count" / "n")["key"].to_pylist()
    assert set(found) == {"plain", "7", "('a', None)", "b'x'"}
