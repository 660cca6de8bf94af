"""What every sink promises, wherever it writes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from penstock.common import Types
from penstock.common.serialization import Encoder
from penstock.connectors.buckets import BucketAssigner
from penstock.connectors.collect import CollectSink
from penstock.connectors.committer import CommitterContext
from penstock.connectors.committing import commit_all
from penstock.connectors.discard import DiscardingSink
from penstock.connectors.file_sink import FileSink
from penstock.connectors.print_sink import PrintSink
from penstock.connectors.rolling import RollingPolicy
from penstock.connectors.sink import PublisherContext, Sink, SinkCut, SinkWriter, WriterContext

PARALLELISM = 2


@dataclass
class Case:
    """A sink of strings and a way to see what it has shown so far, apart from its order."""

    sink: Sink
    shown: Callable[[], list[str]]
    shows_at_the_end: bool = False


def printing(directory: Path, capsys: pytest.CaptureFixture[str]) -> Case:
    lines: list[str] = []

    def shown() -> list[str]:
        lines.extend(line.removeprefix("1> ") for line in capsys.readouterr().out.splitlines())
        return [line.removeprefix("2> ") for line in lines]

    return Case(PrintSink(), shown)


def collecting(directory: Path, capsys: pytest.CaptureFixture[str]) -> Case:
    received: list[str] = []
    return Case(CollectSink(received.extend), lambda: list(received))


def filing(directory: Path, capsys: pytest.CaptureFixture[str]) -> Case:
    def shown() -> list[str]:
        files = [path for path in target.rglob("part-*") if ".staging" not in str(path)]
        return [line for path in sorted(files) for line in path.read_text().splitlines()]

    target = directory / "out"
    builder = FileSink.for_row_format(str(target), Encoder.simple_string_encoder())
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    builder.with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=50_000))
    return Case(builder.build(), shown, shows_at_the_end=True)


@pytest.fixture(params=[printing, collecting, filing], ids=lambda make: make.__name__)
def case(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    return request.param(tmp_path, capsys)


@pytest.fixture
def attempt(case: Case, tmp_path: Path) -> Callable[[int, int, int], SinkWriter]:
    def make(batch: int, subtask: int, try_: int) -> SinkWriter:
        name = f"0-{batch}-0-{subtask}-{try_}"
        in_the_task: Sink = cloudpickle.loads(cloudpickle.dumps(case.sink))
        staging_dir = tmp_path / "staging" / "step"
        return in_the_task.writer(
            WriterContext(
                subtask, PARALLELISM, staging_dir, name, Types.STRING(), job="job", attempt="a1"
            )
        )

    return make


class Ending:
    """A publisher in a job without checkpoints, and the end of that job."""

    def __init__(self, sink: Sink, work_dir: Path) -> None:
        self._sink = sink
        self._work_dir = work_dir
        self._inner = sink.publisher(
            PublisherContext(PARALLELISM, "the sink", work_dir, "job", "a1", checkpointed=False)
        )
        self.publish = self._inner.publish

    def finish(self) -> None:
        cut = self._inner.at_barrier(0, roll_all=True)()
        assert cut.state == []
        context = CommitterContext("job", "a1", "the sink", self._work_dir)
        committer = self._sink.committer(context)
        if committer is None:
            assert cut == SinkCut()
        else:
            commit_all(
                committer, cut.committables, retries=0, pause=lambda _: None, step="the sink"
            )
            committer.sweep([])
            committer.close()
        self._inner.close()


@pytest.fixture
def publisher(case: Case, tmp_path: Path) -> Ending:
    return Ending(case.sink, tmp_path / "work" / "step")


Attempt = Callable[[int, int, int], SinkWriter]


def staged(writer: SinkWriter, values: list[str]) -> bytes:
    for value in values:
        writer.write(value)
    return writer.stage()


def test_nothing_shows_before_it_is_published(
    case: Case, attempt: Attempt, publisher: Ending
) -> None:
    staged(attempt(1, 0, 0), ["x"] * 50_000)
    assert case.shown() == []
    publisher.finish()
    assert case.shown() == []


def test_everything_published_shows_once(case: Case, attempt: Attempt, publisher: Ending) -> None:
    for batch in range(3):
        publisher.publish([staged(attempt(batch, task, 0), [f"{batch}{task}"]) for task in (0, 1)])
    if not case.shows_at_the_end:
        assert case.shown() == ["00", "01", "10", "11", "20", "21"]
    publisher.finish()
    assert sorted(case.shown()) == ["00", "01", "10", "11", "20", "21"]


def test_values_of_a_subtask_keep_their_order(
    case: Case, attempt: Attempt, publisher: Ending
) -> None:
    for batch in range(5):
        values = [f"{batch} {number}" for number in range(1000)]
        publisher.publish([staged(attempt(batch, 0, 0), values), b""])
    publisher.finish()
    shown = case.shown()
    assert shown == [f"{batch} {number}" for batch in range(5) for number in range(1000)]


def test_attempts_that_lost_never_show(case: Case, attempt: Attempt, publisher: Ending) -> None:
    staged(attempt(1, 0, 0), ["lost"])
    aborted = attempt(1, 0, 1)
    aborted.write("aborted")
    aborted.abort()
    attempt(1, 0, 2).write("vanished")
    publisher.publish([staged(attempt(1, 0, 3), ["won"]), staged(attempt(1, 1, 0), [])])
    publisher.finish()
    assert case.shown() == ["won"]


def test_what_travels_with_the_acknowledgement_is_small(
    case: Case, attempt: Attempt, publisher: Ending
) -> None:
    values = [str(number).rjust(100) for number in range(20_000)]
    entry = staged(attempt(1, 0, 0), values)
    assert len(entry) <= 64 * 1024
    publisher.publish([entry, b""])
    publisher.finish()
    assert sorted(case.shown()) == sorted(values)


def test_an_empty_micro_batch_shows_nothing(
    case: Case, attempt: Attempt, publisher: Ending
) -> None:
    assert attempt(1, 0, 0).stage() == b""
    publisher.publish([b"", b""])
    publisher.finish()
    assert case.shown() == []


def test_a_value_may_change_after_it_was_written(
    case: Case, attempt: Attempt, publisher: Ending, tmp_path: Path
) -> None:
    context = WriterContext(0, PARALLELISM, tmp_path / "staging" / "step", "0-1-0-0-0")
    writer = case.sink.writer(context)
    value = [1]
    writer.write(value)
    value.append(2)
    writer.write(value)
    publisher.publish([writer.stage(), b""])
    publisher.finish()
    assert list(map(str, case.shown())) == ["[1]", "[1, 2]"]


@pytest.mark.parametrize("sink", [PrintSink(), DiscardingSink()])
def test_a_sink_without_a_committer_has_nothing_to_cut(sink: Sink, tmp_path: Path) -> None:
    context = PublisherContext(PARALLELISM, "the sink", tmp_path, "job", "a1", checkpointed=True)
    publisher = sink.publisher(context)
    assert publisher.at_barrier(1, roll_all=False)() == SinkCut([], [])
    assert sink.committer(CommitterContext("job", "a1", "the sink", tmp_path)) is None
