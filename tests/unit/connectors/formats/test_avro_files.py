import datetime
import itertools
import json
import random
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import cloudpickle
import fastavro
import pytest

from penstock.common import Row, Types
from penstock.connectors.formats.avro import container as avro_container
from penstock.connectors.formats.avro import files as avro_files
from penstock.datastream.formats.avro import (
    AvroBulkWriters,
    AvroInputFormat,
    AvroReaderFormat,
    AvroSchema,
    GenericRecordAvroTypeInfo,
)
from penstock.errors import (
    ChangedFileError,
    InvalidJobError,
    RuntimeSetupError,
    UnreadableFileError,
    UnwritableRecordError,
)
from penstock.types.signature import type_signature
from tests.unit.connectors.formats.reading import read_chunks, read_lists
from tests.unit.support import collected, environment

FIELDS: list[dict[str, Any]] = [
    {"name": "n", "type": "int"},
    {"name": "s", "type": ["null", "string"], "default": None},
    {"name": "list", "type": {"type": "array", "items": "long"}},
]
DESCRIBED = {"type": "record", "name": "R", "fields": FIELDS}
SCHEMA = AvroSchema.parse_string(json.dumps(DESCRIBED))
RECORDS = [{"n": n, "s": None if n % 3 else f"é{n}", "list": [n] * (n % 4)} for n in range(500)]
CODECS = ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"]


def read(path: Path, *cuts: int, schema: AvroSchema = SCHEMA) -> list[Any]:
    reader = cloudpickle.loads(cloudpickle.dumps(AvroReaderFormat.for_generic_record(schema)))
    places = [0, *cuts, path.stat().st_size]
    chunks = [read_lists(reader, path, a, b) for a, b in itertools.pairwise(places)]
    return list(itertools.chain.from_iterable(itertools.chain.from_iterable(chunks)))


def foreign(path: Path, codec: str = "null", block: int = 200) -> Path:
    with path.open("wb") as file:
        fastavro.writer(file, DESCRIBED, RECORDS, codec=codec, sync_interval=block)
    return path


def written(path: Path, records: list[Any], codec: str = "null", schema: Any = SCHEMA) -> Path:
    with path.open("wb") as file:
        writer = AvroBulkWriters.for_generic_record(schema, codec=codec).create(file)
        for record in records:
            writer.add_element(record)
        writer.finish()
    return path


def plain(path: Path) -> list[Any]:
    with path.open("rb") as file:
        return list(fastavro.reader(file))


@pytest.mark.parametrize("codec", CODECS)
def test_what_another_library_wrote_is_read(tmp_path: Path, codec: str) -> None:
    assert read(foreign(tmp_path / "f", codec)) == RECORDS


@pytest.mark.parametrize("codec", CODECS)
def test_pieces_become_one_file_that_another_library_reads(
    tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro_files, "_BLOCK_BYTES", 300)
    parts = [RECORDS[:200], [], RECORDS[200:]]
    pieces = [written(tmp_path / str(n), part, codec) for n, part in enumerate(parts)]
    with (tmp_path / "all").open("wb") as file:
        AvroBulkWriters.for_generic_record(SCHEMA, codec=codec).merge(pieces, file)
    assert plain(tmp_path / "all") == RECORDS
    with (tmp_path / "all").open("rb") as file:
        assert fastavro.reader(file).codec == codec


def test_any_ranges_return_every_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro_container, "_SEARCH_BYTES", 7)
    path = foreign(tmp_path / "f")
    size, chance = path.stat().st_size, random.Random(5)
    for cuts in [
        *([n] for n in range(1, 700, 9)),
        *([chance.randrange(1, size) for _ in range(9)] for _ in range(20)),
    ]:
        assert read(path, *sorted(cuts)) == RECORDS


def test_a_newer_schema_reads_older_files(tmp_path: Path) -> None:
    newer = {**DESCRIBED, "fields": [FIELDS[0], {"name": "new", "type": "string", "default": "x"}]}
    records = read(foreign(tmp_path / "f"), schema=AvroSchema(json.dumps(newer)))
    assert records[:2] == [{"n": 0, "new": "x"}, {"n": 1, "new": "x"}]


def test_an_incompatible_schema_is_reported_with_file_and_record(tmp_path: Path) -> None:
    other = {**DESCRIBED, "fields": [{"name": "n", "type": "string"}]}
    path = foreign(tmp_path / "f")
    with pytest.raises(UnreadableFileError, match=r"block at byte \d+, record 1: .*chema") as error:
        read(path, schema=AvroSchema(json.dumps(other)))
    assert str(path) in str(error.value)
    missing = {**DESCRIBED, "fields": [*FIELDS, {"name": "new", "type": "string"}]}
    with pytest.raises(UnreadableFileError, match="new"):
        read(path, schema=AvroSchema(json.dumps(missing)))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("cut", [0, 1000])
def test_damage_is_never_skipped(tmp_path: Path, codec: str, cut: int) -> None:
    path = foreign(tmp_path / "f", codec)
    with path.open("rb") as file:
        header = avro_container.read_header(file, path)
    good = path.read_bytes()
    second = good.index(header.marker, header.size) + 16
    third = good.index(header.marker, second)
    for position in (third, third + 15):
        data = bytearray(good)
        data[position] ^= 0xFF
        path.write_bytes(data)
        with pytest.raises(UnreadableFileError, match=f"byte {second}: it is not followed by"):
            read(path, *([cut] if cut else []))
    path.write_bytes(good[:-5])
    with pytest.raises(UnreadableFileError, match="the file ends inside it"):
        read(path)
    path.write_bytes(b"no avro")
    with pytest.raises(UnreadableFileError, match="its header: it is not an Avro file"):
        read(path)


@pytest.mark.parametrize("codec", ["deflate", "snappy", "zstandard", "bzip2", "xz"])
def test_a_compressed_block_that_is_damaged_is_named(tmp_path: Path, codec: str) -> None:
    path = foreign(tmp_path / "f", codec, block=10**6)
    data = bytearray(path.read_bytes())
    middle = len(data) * 3 // 4
    data[middle : middle + 20] = b"\xff" * 20
    path.write_bytes(data)
    with pytest.raises(UnreadableFileError, match=r"the block at byte \d+"):
        read(path)


def test_a_flipped_bit_under_snappy_is_found_by_the_checksum(tmp_path: Path) -> None:
    path = foreign(tmp_path / "f", "snappy", block=10**6)
    data = bytearray(path.read_bytes())
    data[-18] ^= 1
    path.write_bytes(data)
    with pytest.raises(UnreadableFileError, match="checksum"):
        read(path)


def test_an_unknown_codec_is_named(tmp_path: Path) -> None:
    path = tmp_path / "f"
    marker = b"m" * 16
    block = avro_container.encode_block(1, b"x", marker)
    path.write_bytes(avro_container.encode_header(DESCRIBED, "lz77", marker) + block)
    with pytest.raises(UnreadableFileError, match="codec 'lz77' is none of null, deflate, snappy"):
        read(path)
    with pytest.raises(InvalidJobError, match=r"one of null, deflate, snappy.*'lz77'"):
        AvroBulkWriters.for_generic_record(SCHEMA, codec="lz77")


def test_a_file_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    path = foreign(tmp_path / "f")
    with pytest.raises(ChangedFileError):
        read_chunks(AvroReaderFormat.for_generic_record(SCHEMA), path, 0, 10**9)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"n": 2**31, "s": None, "list": []}, "R.n is <2147483648>"),
        ({"n": 1, "s": 5, "list": []}, "R.s is <5>"),
        ({"n": 1, "s": None, "list": ["x"]}, "expected long"),
        ({"s": None, "list": []}, "R.n"),
        (Row(n="1", s=None, list=[]), "R.n"),
        (Row(m=1), r"fields \['n', 's', 'list'\] are expected"),
        (5, "are expected"),
    ],
    ids=["too large", "no text", "in a list", "missing", "row", "other row", "no record"],
)
def test_a_record_of_another_type_names_its_field(record: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnwritableRecordError, match=reason):
        written(tmp_path / "f", [record])


def test_rows_tuples_and_records_with_defaults_are_written(tmp_path: Path) -> None:
    rows = [Row(n=1, s="a", list=[1]), (2, None, []), {"n": 3, "list": []}]
    assert plain(written(tmp_path / "f", rows)) == [
        {"n": 1, "s": "a", "list": [1]},
        {"n": 2, "s": None, "list": []},
        {"n": 3, "s": None, "list": []},
    ]


def test_every_kind_of_field_is_read_as_written(tmp_path: Path) -> None:
    kinds: dict[str, tuple[Any, Any]] = {
        "boolean": ("boolean", True),
        "double": ("double", 0.1),
        "bytes": ("bytes", b"\x00"),
        "map": ({"type": "map", "values": ["null", "int"]}, {"a": 1, "b": None}),
        "enum": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
        "fixed": ({"type": "fixed", "name": "F", "size": 2}, b"ab"),
        "union": (["null", "int", "string"], "text"),
        "date": ({"type": "int", "logicalType": "date"}, datetime.date(2024, 2, 29)),
        "at": (
            {"type": "long", "logicalType": "timestamp-micros"},
            datetime.datetime(2024, 2, 29, 1, 2, 3, 4, datetime.UTC),
        ),
        "money": (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            Decimal("1.50"),
        ),
        "again": ("F", b"cd"),
    }
    fields = [{"name": name, "type": kind} for name, (kind, _) in kinds.items()]
    fields.append({"name": "inner", "type": ["null", "R"]})
    schema = AvroSchema(json.dumps({"type": "record", "name": "R", "fields": fields}))
    record: dict[str, Any] = {name: value for name, (_, value) in kinds.items()}
    record["inner"] = {**record, "inner": None}
    path = written(tmp_path / "f", [record], schema=schema)
    assert plain(path) == [record]
    assert read(path, schema=schema) == [record]


def test_a_time_without_a_zone_is_one_of_utc(tmp_path: Path) -> None:
    field = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
    schema = AvroSchema(json.dumps({"type": "record", "name": "R", "fields": [field]}))
    naive = datetime.datetime(2024, 2, 29, 1)  # noqa: DTZ001
    path = written(tmp_path / "f", [{"at": naive}], schema=schema)
    assert plain(path) == [{"at": naive.replace(tzinfo=datetime.UTC)}]


def test_invalid_schemas_are_rejected(tmp_path: Path) -> None:
    for text in ("{", '{"type": "nothing"}', '{"type": "record"}'):
        with pytest.raises(InvalidJobError, match="not an Avro schema"):
            AvroSchema.parse_string(text)
    with pytest.raises(InvalidJobError, match="schema of records"):
        AvroReaderFormat.for_generic_record(AvroSchema('"string"'))
    (tmp_path / "schema.avsc").write_text(str(SCHEMA))
    assert AvroSchema.parse_file(str(tmp_path / "schema.avsc")) == SCHEMA


def test_without_the_library_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(RuntimeSetupError, match=r"pip install '/path/to/penstock\[avro\]'"):
        AvroSchema.parse_string("{}")


def test_an_input_format_is_a_stream_of_dicts(tmp_path: Path) -> None:
    env = environment(2)
    records = env.create_input(AvroInputFormat(foreign(tmp_path / "f"), SCHEMA))
    kept = records.map(lambda r: r, GenericRecordAvroTypeInfo(SCHEMA)).key_by(lambda r: r["n"])
    found = collected(kept.map(lambda r: r))
    assert sorted(found, key=lambda record: record["n"]) == RECORDS
    assert type_signature(GenericRecordAvroTypeInfo(SCHEMA)) == type_signature(
        Types.PICKLED_BYTE_ARRAY()
    )
    with pytest.raises(InvalidJobError, match="AvroInputFormat"):
        env.create_input(object())  # type: ignore[arg-type]
