import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types
from penstock.common.serialization import Encoder
from penstock.connectors.buckets import BucketAssigner
from penstock.connectors.file_sink import FileSink, OutputFileConfig, RowFormatBuilder
from penstock.connectors.java_time_pattern import compile_pattern, zone_of
from penstock.connectors.rolling import Piece, RollingPolicy, roll
from penstock.connectors.sink import PublisherContext, SinkPublisher, WriterContext
from penstock.errors import LostStagedFileError


def into(directory: Path) -> RowFormatBuilder:
    builder = FileSink.for_row_format(str(directory), Encoder.simple_string_encoder())
    return builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())


def staged(sink: FileSink, batch: int, subtask: int, values: list[Any]) -> bytes:
    context = WriterContext(subtask, 2, Path("unused"), f"0-{batch}-0-{subtask}-0", Types.STRING())
    writer = sink.writer(context)
    writer.write_many(values)
    return writer.stage()


def publisher_of(sink: FileSink) -> SinkPublisher:
    return sink.publisher(PublisherContext(2, "files", Path("unused")))


def run(sink: FileSink, batches: list[list[list[str]]]) -> None:
    publisher = publisher_of(sink)
    for batch, subtasks in enumerate(batches):
        publisher.publish(
            [staged(sink, batch, subtask, values) for subtask, values in enumerate(subtasks)]
        )
    publisher.finish()
    publisher.close()


def contents(directory: Path) -> list[str]:
    return sorted(path.read_text() for path in directory.iterdir())


def test_each_subtask_gets_one_part_across_micro_batches(tmp_path: Path) -> None:
    run(into(tmp_path).build(), [[["a"], ["x"]], [["b"], []], [["c"], ["y"]]])
    assert contents(tmp_path) == ["a\nb\nc\n", "x\ny\n"]


def test_parts_are_named_after_prefix_writer_number_and_suffix(tmp_path: Path) -> None:
    config = OutputFileConfig.builder().with_part_prefix("p").with_part_suffix(".txt").build()
    policy = RollingPolicy.default_rolling_policy(part_size=2)
    sink = into(tmp_path).with_output_file_config(config).with_rolling_policy(policy).build()
    run(sink, [[["aa", "bb"]]])
    names = sorted(path.name for path in tmp_path.iterdir())
    assert all(re.fullmatch(r"p-[0-9a-f-]{36}-[01]\.txt", name) for name in names)
    assert len(names) == 2


def test_parts_obey_the_part_size_and_end_between_records(tmp_path: Path) -> None:
    policy = RollingPolicy.default_rolling_policy(part_size=100)
    lines = [str(number).rjust(9) for number in range(95)]
    batches = [[lines[first : first + 7]] for first in range(0, 95, 7)]
    run(into(tmp_path).with_rolling_policy(policy).build(), batches)
    parts = sorted(tmp_path.iterdir(), key=lambda path: int(path.name.rpartition("-")[2]))
    assert all(path.stat().st_size <= 110 for path in parts)
    assert "".join(path.read_text() for path in parts).splitlines() == lines


def test_nothing_but_finished_files_is_left_behind(tmp_path: Path) -> None:
    sink = into(tmp_path).build()
    staged(sink, 7, 0, ["lost"])
    run(sink, [[["a"]]])
    assert contents(tmp_path) == ["a\n"]


def test_files_already_there_are_not_touched(tmp_path: Path) -> None:
    for _ in range(2):
        run(into(tmp_path).build(), [[["a"]]])
    assert contents(tmp_path) == ["a\n", "a\n"]


def test_unfinished_output_is_hidden_from_readers_of_the_directory(tmp_path: Path) -> None:
    sink = into(tmp_path).build()
    publisher_of(sink).publish([staged(sink, 1, 0, ["a"])])
    (only,) = tmp_path.iterdir()
    assert only.name.startswith(".staging-")


def test_a_staged_file_that_is_gone_is_an_error_and_shows_nothing(tmp_path: Path) -> None:
    sink = into(tmp_path).build()
    publisher = publisher_of(sink)
    publisher.publish([staged(sink, 1, 0, ["a"]), staged(sink, 1, 1, ["b"])])
    next(tmp_path.glob(".staging-*/unused/0-1-0-1-0/0")).unlink()
    with pytest.raises(LostStagedFileError):
        publisher.finish()
    assert not list(tmp_path.glob("part-*"))


def test_typed_values_are_written_as_java_would(tmp_path: Path) -> None:
    sink = into(tmp_path).build()
    type_info = Types.TUPLE([Types.STRING(), Types.DOUBLE()])
    writer = sink.writer(WriterContext(0, 1, Path("unused"), "name", type_info))
    writer.write(("a", 1e10))
    publisher = publisher_of(sink)
    publisher.publish([writer.stage()])
    publisher.finish()
    assert contents(tmp_path) == ["(a,1.0E10)\n"]


def test_by_default_buckets_are_named_after_the_hour(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()
    run(sink, [[["a"]]])
    (bucket,) = tmp_path.iterdir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d--\d\d", bucket.name)
    assert contents(bucket) == ["a\n"]


def test_java_patterns_are_understood() -> None:
    moment = datetime(2024, 3, 5, 7, 8, 9, tzinfo=UTC)
    assert compile_pattern("yyyy-MM-dd--HH")(moment) == "2024-03-05--07"
    assert compile_pattern("'day'=yyyy/MM/dd''mm%ss")(moment) == "day=2024/03/05'08%09"
    with pytest.raises(ValueError, match="got 'QQQ'"):
        compile_pattern("QQQ")


def test_zones_are_found_by_name_and_by_offset() -> None:
    assert zone_of("GMT-08:00") == timezone(timedelta(hours=-8))
    assert zone_of(None) is None
    assert str(zone_of("Europe/Vienna")) == "Europe/Vienna"
    with pytest.raises(ValueError, match="'Nowhere'"):
        BucketAssigner.date_time_bucket_assigner(timezone_id="Nowhere")


def test_parts_roll_when_they_are_old_or_idle() -> None:
    pieces = [Piece(str(at), 1, at) for at in (0.0, 5.0, 9.0, 10.0, 11.0, 16.5)]
    policy = RollingPolicy.default_rolling_policy(100, 10_000, 5_500)
    times = [[piece.time for piece in part] for part in roll(pieces, policy)]
    assert times == [[0.0, 5.0, 9.0], [10.0, 11.0], [16.5]]
    assert len(roll(pieces, RollingPolicy.on_checkpoint_rolling_policy())) == 1


def test_senseless_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="part_size=0"):
        RollingPolicy.default_rolling_policy(part_size=0)
