from pathlib import Path

import pytest

from penstock.common import Types
from penstock.connectors.contracts.sink import PublisherContext, SinkPublisher, WriterContext
from penstock.connectors.print_sink import PrintSink
from penstock.errors import LostStagedFileError


def publisher_of(sink: PrintSink, work_dir: Path, parallelism: int = 1) -> SinkPublisher:
    context = PublisherContext(
        parallelism, "print", work_dir, "job", "a1", checkpointed=False, staging_dir=work_dir
    )
    return sink.publisher(context)


def printed(
    sink: PrintSink, work_dir: Path, subtask: int, parallelism: int, value: object = "x"
) -> None:
    context = WriterContext(subtask, parallelism, work_dir, "name", Types.STRING())
    writer = sink.writer(context)
    writer.write(value)
    publisher_of(sink, work_dir, parallelism).publish([writer.stage()])


@pytest.mark.parametrize(
    ("identifier", "parallelism", "line"),
    [(None, 1, "x\n"), (None, 4, "3> x\n"), ("id", 1, "id> x\n"), ("id", 4, "id:3> x\n")],
)
def test_the_prefix_names_identifier_and_subtask_if_there_are_several(
    identifier: str | None,
    parallelism: int,
    line: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    subtask = 2 if parallelism > 1 else 0
    printed(PrintSink(identifier), tmp_path, subtask, parallelism)
    assert capsys.readouterr().out == line


def test_it_prints_to_standard_error_if_configured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed(PrintSink(stderr=True), tmp_path, 0, 1)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "x\n")


def test_values_print_as_their_type_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    type_info = Types.TUPLE([Types.STRING(), Types.INT()])
    sink = PrintSink()
    writer = sink.writer(WriterContext(0, 1, tmp_path, "name", type_info))
    writer.write(("a", 1))
    writer.write(("b", 2))
    untyped = sink.writer(WriterContext(0, 1, tmp_path, "name"))
    untyped.write(("a", 1))
    publisher = publisher_of(sink, tmp_path)
    publisher.publish([writer.stage(), untyped.stage()])
    assert capsys.readouterr().out == "(a,1)\n(b,2)\n('a', 1)\n"


def test_half_of_a_character_does_not_stop_the_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed(PrintSink(), tmp_path, 0, 1, "a\ud800")
    assert capsys.readouterr().out == "a?\n"


def test_a_missing_staged_file_is_an_error(tmp_path: Path) -> None:
    sink = PrintSink()
    writer = sink.writer(WriterContext(0, 1, tmp_path, "name"))
    writer.write("x" * 100_000)
    staged = writer.stage()
    (tmp_path / "name").unlink()
    with pytest.raises(LostStagedFileError, match="has 0 bytes, but its task wrote 100001"):
        publisher_of(sink, tmp_path).publish([staged])
