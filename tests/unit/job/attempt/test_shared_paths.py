"""What hosts must share is found out before anything runs on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from penstock.common import Configuration, WatermarkStrategy
from penstock.common.serialization import Encoder
from penstock.connectors.discarding_sink import DiscardingSink
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.errors import MissingOnHostError, PenstockError, UnsharedWorkDirError
from penstock.graph.plan import Plan
from penstock.job.launch import launch
from penstock.job.launched_job import LaunchedJob
from penstock.testing.inline import InlineSubmitter

Missing = Callable[[Sequence[Path]], Mapping[Path, str]]


class Cluster:
    """An engine on whose host `worker-2` some paths are missing."""

    def __init__(self, directory: Path, is_missing: Callable[[Path], bool]) -> None:
        self.work = directory / "work"
        self.micro_batches = 0
        self.asked: list[Path] = []
        self._is_missing = is_missing

    def environment(self) -> StreamExecutionEnvironment:
        settings = {"penstock.work-dir": str(self.work), "restart-strategy.type": "fixed-delay"}
        configuration = Configuration.from_dict(settings)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env._launcher = self._launch
        return env

    def _launch(self, plan: Plan, configuration: Configuration, batch_mode: bool) -> LaunchedJob:
        def missing(paths: Sequence[Path]) -> Mapping[Path, str]:
            assert all(path.exists() for path in paths), "they exist where the driver is"
            self.asked += paths
            return {path: "worker-2" for path in paths if self._is_missing(path)}

        return launch(
            plan,
            configuration,
            batch_mode,
            lambda regions, _job, tasks, _stay: InlineSubmitter(regions, tasks),
            missing_on_hosts=missing,
        )


def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_source(NumberSequenceSource(0, 9), WatermarkStrategy.no_watermarks(), "numbers")


def test_nothing_is_left_of_the_question_whether_hosts_share_a_directory(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, lambda path: False)
    env = cluster.environment()
    numbers(env).sink_to(DiscardingSink())
    env.execute("numbers")
    (marker,) = cluster.asked
    assert marker.is_relative_to(cluster.work)
    assert not marker.exists()


def test_without_a_store_hosts_must_see_the_work_directory(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, lambda path: path.is_relative_to(tmp_path / "work"))
    env = cluster.environment()
    numbers(env).sink_to(DiscardingSink())
    with pytest.raises(UnsharedWorkDirError, match=r"worker-2 .*work.* penstock\.work-dir"):
        env.execute("numbers")


def test_a_source_refuses_hosts_that_lack_its_path(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    cluster = Cluster(tmp_path, lambda path: path.name == "in")
    env = cluster.environment()
    source = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(tmp_path / "in")
    )
    lines = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "lines")
    lines.sink_to(DiscardingSink())
    with pytest.raises(MissingOnHostError, match=r"'Source: lines' needs .*/in .*worker-2"):
        env.execute("lines")


def test_a_sink_refuses_hosts_that_do_not_see_what_the_driver_writes_into_its_path(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path, lambda path: path.is_relative_to(tmp_path / "out"))
    env = cluster.environment()
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
    numbers(env).sink_to(sink.build()).name("files")
    with pytest.raises(MissingOnHostError, match=r"needs .*/out .*worker-2"):
        env.execute("numbers")
    assert list((tmp_path / "out").iterdir()) == []


def test_markers_that_a_killed_driver_has_left_in_a_sinks_path_are_removed_after_a_day(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    old, new, other = (out / f".penstock-{name}" for name in ("0" * 16, "1" * 16, "notes"))
    for path in (old, new, other):
        path.touch()
    for path in (old, other):
        os.utime(path, (1.0, 1.0))
    env = Cluster(tmp_path, lambda path: False).environment()
    sink = FileSink.for_row_format(str(out), Encoder.simple_string_encoder())
    numbers(env).sink_to(sink.build())
    env.execute("numbers")
    assert sorted(out.glob(".penstock-*")) == sorted([new, other])


def test_records_from_a_socket_are_read_from_the_work_directory(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, lambda path: path.is_relative_to(tmp_path / "work"))
    env = cluster.environment()
    env.socket_text_stream("127.0.0.1", 1).sink_to(DiscardingSink())
    with pytest.raises(PenstockError, match=r"needs .*/work .*worker-2"):
        env.execute("lines")
