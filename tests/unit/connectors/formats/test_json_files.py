import io
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Row, Types
from penstock.datastream.formats.json import (
    JsonBulkWriters,
    JsonReaderFormat,
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from penstock.errors import UnreadableFileError
from tests.unit.connectors.formats.reading import read_lists

WORDS = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()])
SCHEMA = JsonRowDeserializationSchema.builder().type_info(WORDS)


def read(path: Path, *cuts: int, schema: Any = None) -> list[Any]:
    reader = JsonReaderFormat.for_schema(schema or SCHEMA.build())
    places = [0, *cuts, path.stat().st_size]
    chunks = [read_lists(reader, path, a, b) for a, b in itertools.pairwise(places)]
    return list(itertools.chain.from_iterable(itertools.chain.from_iterable(chunks)))


@pytest.mark.parametrize("cut", [1, 18, 19, 20, 25])
def test_a_line_belongs_to_the_range_it_starts_in(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "file"
    path.write_text('{"word":"a","n":1}\n\n{"n":2,"word":"é","x":[]}\r\n{"word":"c"}')
    assert read(path, cut) == [Row(word="a", n=1), Row(word="é", n=2), Row(word="c", n=None)]


def test_a_bad_line_is_named_by_its_number_and_field(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text('{"word":"a","n":1}\n\n{"word":"b","n":"two"}\n')
    with pytest.raises(UnreadableFileError, match=r"line 3: .*two") as caught:
        read(path)
    assert str(path) in str(caught.value)
    lenient = JsonRowDeserializationSchema.builder().type_info(WORDS).ignore_parse_errors()
    assert read(path, schema=lenient.build()) == [Row(word="a", n=1), Row(word="b", n=None)]


def test_what_is_written_is_an_object_per_line(tmp_path: Path) -> None:
    factory = JsonBulkWriters.for_schema(
        JsonRowSerializationSchema.builder().with_type_info(WORDS).build()
    )
    pieces = []
    for number, rows in enumerate([[Row("a", 1), Row("b\n", None)], [Row("c", 3)]]):
        pieces.append(tmp_path / str(number))
        with pieces[-1].open("wb") as file:
            writer = factory.create(file)
            for row in rows:
                writer.add_element(row)
            writer.finish()
    merged = io.BytesIO()
    factory.merge(pieces, merged)
    objects = [json.loads(line) for line in merged.getvalue().splitlines()]
    assert [(o["word"], o["n"]) for o in objects] == [("a", 1), ("b\n", None), ("c", 3)]


def test_other_values_than_schemas_are_rejected() -> None:
    with pytest.raises(TypeError, match="JsonRowDeserializationSchema"):
        JsonReaderFormat.for_schema(WORDS)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="JsonRowSerializationSchema"):
        JsonBulkWriters.for_schema(WORDS)  # type: ignore[arg-type]
