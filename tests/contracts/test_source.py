"""What every source guarantees."""

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Row, Types
from penstock.connectors import indexed_sources
from penstock.connectors.contracts.input_settings import InputSettings
from penstock.connectors.contracts.source import (
    CHUNK_RECORDS,
    EnumeratorContext,
    ReadPlan,
    Source,
    SourceEnumerator,
    SplitRange,
)
from penstock.connectors.files import enumerator as file_enumerator
from penstock.connectors.files.source import FileEnumeratorProvider, FileSource
from penstock.connectors.formats import line_files
from penstock.connectors.formats.text_lines import StreamFormat
from penstock.connectors.indexed_sources import (
    CollectionSource,
    DataGeneratorSource,
    NumberSequenceSource,
)
from penstock.connectors.socket.ingestion_log import IngestionLog
from penstock.connectors.socket.source import SocketSource
from penstock.datastream.formats.avro import AvroReaderFormat, AvroSchema
from penstock.datastream.formats.csv import CsvReaderFormat, CsvSchema
from penstock.datastream.formats.json import JsonReaderFormat, JsonRowDeserializationSchema
from penstock.datastream.formats.parquet import ParquetColumnarRowInputFormat
from penstock.storage.storages import storage_at
from penstock.testing.servers.s3_server import S3Server

Made = tuple[Source, list[Any]]

LINES = [f"line {number} " + "é" * (number % 7) for number in range(400)]

ROWS = Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()])


def a_collection(work_dir: Path) -> Made:
    elements: list[Any] = [*range(700), None, "x", (1, [2])]
    return CollectionSource(elements), elements


def an_empty_collection(work_dir: Path) -> Made:
    return CollectionSource([]), []


def a_sequence(work_dir: Path) -> Made:
    return NumberSequenceSource(-5, 700), list(range(-5, 701))


def generated_records(work_dir: Path) -> Made:
    return DataGeneratorSource(lambda index: index * index, 500), [n * n for n in range(500)]


def text_files(work_dir: Path) -> Made:
    for name, first in (("a", 0), ("b", 100), ("c/d", 300)):
        path = work_dir / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        last = {0: 100, 100: 300, 300: 400}[first]
        path.write_text("\r\n".join(LINES[first:last]), newline="")
    (work_dir / "files" / "empty").touch()
    lines = StreamFormat.text_line_format()
    return FileSource.for_record_stream_format(lines, work_dir / "files").build(), LINES


def whole_files(work_dir: Path) -> Made:
    _, lines = text_files(work_dir)
    whole = FileEnumeratorProvider.default_non_splittable_file_enumerator()
    builder = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), work_dir / "files"
    )
    return builder.set_file_enumerator(whole).build(), lines


def latin_files(work_dir: Path) -> Made:
    (work_dir / "latin").write_text("\n".join(LINES), encoding="latin-1")
    lines = StreamFormat.text_line_format("ISO-8859-1")
    return FileSource.for_record_stream_format(lines, work_dir / "latin").build(), LINES


def csv_files(work_dir: Path) -> Made:
    rows = [Row(n=number, text=line) for number, line in enumerate(LINES)]
    for name, some in (("a", rows[:150]), ("b", rows[150:])):
        lines = [f"{row.n},{row.text}\n" for row in some]
        (work_dir / name).write_text("n,text\n" + "".join(lines))
    schema = CsvSchema.builder().add_number_column("n").add_string_column("text")
    reader = CsvReaderFormat.for_schema(schema.set_use_header().build())
    paths = [work_dir / "a", work_dir / "b"]
    return FileSource.for_record_stream_format(reader, *paths).build(), rows


def json_files(work_dir: Path) -> Made:
    rows = [Row(n=number, text=line) for number, line in enumerate(LINES)]
    (work_dir / "j").write_text("\n".join(json.dumps(row.as_dict()) for row in rows))
    schema = JsonRowDeserializationSchema.builder().type_info(ROWS).build()
    reader = JsonReaderFormat.for_schema(schema)
    return FileSource.for_record_stream_format(reader, work_dir / "j").build(), rows


def parquet_files(work_dir: Path) -> Made:
    rows = [Row(n=number, text=line) for number, line in enumerate(LINES)]
    table = pa.table({"n": range(len(LINES)), "text": LINES})
    (work_dir / "p").mkdir()
    pq.write_table(table.slice(0, 230), work_dir / "p" / "a", row_group_size=40)
    pq.write_table(table.slice(230), work_dir / "p" / "b")
    pq.write_table(table.slice(0, 0), work_dir / "p" / "empty")
    reader = ParquetColumnarRowInputFormat(ROWS)
    return FileSource.for_bulk_file_format(reader, work_dir / "p").build(), rows


def avro_files(work_dir: Path) -> Made:
    fields = [{"name": "n", "type": "long"}, {"name": "text", "type": "string"}]
    schema = {"type": "record", "name": "R", "fields": fields}
    records = [{"n": number, "text": line} for number, line in enumerate(LINES)]
    with (work_dir / "avro").open("wb") as file:
        fastavro.writer(file, schema, records, codec="deflate", sync_interval=300)
    reader = AvroReaderFormat.for_generic_record(AvroSchema(json.dumps(schema)))
    return FileSource.for_record_stream_format(reader, work_dir / "avro").build(), records


def a_logged_socket(work_dir: Path) -> Made:
    log = IngestionLog(work_dir / "ingestion-log", segment_bytes=1000, segment_blocks=5)
    encoded = [line.encode() for line in LINES]
    for first in range(0, len(encoded), 13):
        log.append(encoded[first : first + 13])
    log.append_end()
    log.close()
    return SocketSource("localhost", 1), LINES


MAKERS: list[Callable[[Path], Made]] = [
    a_collection,
    an_empty_collection,
    a_sequence,
    generated_records,
    text_files,
    whole_files,
    latin_files,
    csv_files,
    json_files,
    parquet_files,
    avro_files,
    a_logged_socket,
]
IN_S3 = [text_files, whole_files, latin_files, csv_files, json_files, parquet_files, avro_files]
PARAMETERS: list[Any] = [
    *(pytest.param((make, False), id=make.__name__) for make in MAKERS),
    *(
        pytest.param((make, True), id=f"{make.__name__}_in_s3", marks=pytest.mark.s3)
        for make in IN_S3
    ),
]


def moved(source: FileSource, work_dir: Path, s3: S3Server) -> FileSource:
    """Return the same source, whose files are in a store."""
    s3.create_bucket("sources")
    place = s3.url("sources", work_dir.name)
    storage = storage_at(place)
    for path in (path for path in work_dir.rglob("*") if path.is_file()):
        storage.replace(path.relative_to(work_dir).as_posix(), path.read_bytes())
    files = source._files
    roots = (place / root.relative_to(work_dir).as_posix() for root in files.roots)
    moved = FileSource(dataclasses.replace(files, roots=tuple(roots)))
    return moved.with_settings(InputSettings(storage_options=place.options))


@pytest.fixture(scope="module", params=PARAMETERS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    work_dir = tmp_path_factory.mktemp("source")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_enumerator, "_MIN_SPLIT_BYTES", 10)
        patch.setattr(line_files, "_BLOCK_BYTES", 100)
        patch.setattr(indexed_sources, "_BLOCK_ELEMENTS", 64)
        make, is_moved = request.param
        source, records = make(work_dir)
        if is_moved:
            source = moved(source, work_dir, request.getfixturevalue("s3"))
        yield cloudpickle.loads(cloudpickle.dumps(source)), records, work_dir


def opened(
    source: Source,
    work_dir: Path,
    parallelism: int,
    positions: dict[str, int],
    state: bytes = b"",
) -> SourceEnumerator:
    context = EnumeratorContext(parallelism, work_dir, clock=lambda: 0.0, wake=lambda: None)
    enumerator = source.enumerator(context)
    if state:
        enumerator.restore_state(state)
    enumerator.start(positions)
    return enumerator


def ranges_of(plan: ReadPlan) -> list[SplitRange]:
    return list(itertools.chain.from_iterable(plan))


def records_of(source: Source, ranges: list[SplitRange]) -> list[Any]:
    chunks = [list(source.read_lists(part)) for part in ranges]
    return list(itertools.chain.from_iterable(itertools.chain.from_iterable(chunks)))


def drain(enumerator: SourceEnumerator, sizes: Iterator[int]) -> Iterator[ReadPlan]:
    while not enumerator.finished():
        plan = enumerator.plan(next(sizes))
        assert plan, "a source that is not finished and needs nothing new must plan"
        yield plan


plan_sizes = st.lists(st.integers(5, 2000), min_size=1, max_size=5).map(itertools.cycle)


@settings(max_examples=8, deadline=None)
@given(parallelism=st.integers(1, 5), sizes=plan_sizes)
def test_any_plans_read_everything_once_and_in_order(
    made: Any, parallelism: int, sizes: Iterator[int]
) -> None:
    source, records, work_dir = made
    enumerator = opened(source, work_dir, parallelism, {})
    plans = list(drain(enumerator, sizes))
    enumerator.close()
    assert all(len(plan) == parallelism for plan in plans)
    ranges = ranges_of(list(itertools.chain.from_iterable(plans)))
    assert records_of(source, ranges) == records


@settings(max_examples=8, deadline=None)
@given(parallelism=st.integers(1, 5), sizes=plan_sizes, data=st.data())
def test_a_restored_source_continues_after_its_positions(
    made: Any, parallelism: int, sizes: Iterator[int], data: st.DataObject
) -> None:
    source, records, work_dir = made
    first = opened(source, work_dir, parallelism, {})
    plans = list(itertools.islice(drain(first, sizes), data.draw(st.integers(0, 4))))
    positions, state = first.positions(), first.snapshot_state()
    # Ranges belong to their attempt: the next one may remove what they are read from.
    read = records_of(source, ranges_of(list(itertools.chain.from_iterable(plans))))
    first.close()
    second = opened(source, work_dir, data.draw(st.integers(1, 5)), positions, state)
    assert second.positions() == positions
    plans = list(drain(second, sizes))
    second.close()
    read += records_of(source, ranges_of(list(itertools.chain.from_iterable(plans))))
    assert read == records


@settings(max_examples=8, deadline=None)
@given(sizes=plan_sizes)
def test_a_range_returns_the_same_records_whenever_it_is_read(
    made: Any, sizes: Iterator[int]
) -> None:
    source, _, work_dir = made
    enumerator = opened(source, work_dir, 2, {})
    for plan in drain(enumerator, sizes):
        for part in ranges_of(plan):
            chunks = [c if isinstance(c, list) else c.to_pylist() for c in source.read(part)]
            assert all(len(chunk) <= CHUNK_RECORDS for chunk in chunks)
            assert list(itertools.chain.from_iterable(chunks)) == records_of(source, [part])
    enumerator.close()


@settings(max_examples=8, deadline=None)
@given(parallelism=st.integers(1, 5), sizes=plan_sizes)
def test_ranges_of_a_split_ascend_with_the_subtask(
    made: Any, parallelism: int, sizes: Iterator[int]
) -> None:
    source, _, work_dir = made
    enumerator = opened(source, work_dir, parallelism, {})
    ends: dict[str, int] = {}
    for plan in drain(enumerator, sizes):
        for part in ranges_of(plan):
            assert ends.get(part.split, 0) == part.start < part.end
            ends[part.split] = part.end
    enumerator.close()


def test_a_finished_source_plans_nothing_and_stays_finished(made: Any) -> None:
    source, _, work_dir = made
    enumerator = opened(source, work_dir, 2, {})
    for _ in drain(enumerator, itertools.repeat(10_000)):
        pass
    assert enumerator.plan(100) == []
    assert enumerator.finished()
    assert enumerator.next_poll() is None
    positions, state = enumerator.positions(), enumerator.snapshot_state()
    enumerator.close()
    again = opened(source, work_dir, 2, positions, state)
    assert again.finished() or not (positions or state)
    again.close()
