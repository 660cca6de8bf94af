"""Jobs whose sink cannot commit."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpointStore
from penstock.common import Encoder, Types
from penstock.connectors.contracts.committer import CommitRequest
from penstock.connectors.files.committer import PartFileCommitter
from penstock.datastream.connectors.file_system import FileSink
from penstock.errors import CommitFailedError, LostPendingFileError
from penstock.testing import Burst, Idle, ManualClock, Pause, compare, read_lines
from penstock.testing.verification import finished_files
from tests.unit.job.counting import Program, checkpoint, counted, die, wait_for_records
from tests.unit.support import environment, eventually


def calls_until_the_job_fails(
    root: Path, monkeypatch: pytest.MonkeyPatch, signal: Callable[[CommitRequest], None]
) -> int:
    calls = 0

    def commit(self: PartFileCommitter, requests: Sequence[CommitRequest]) -> None:
        nonlocal calls
        calls += 1
        for request in requests:
            signal(request)

    monkeypatch.setattr(PartFileCommitter, "commit", commit)
    env = environment(
        execution__checkpointing__dir=str(root / "checkpoints"),
        execution__checkpointing__interval="1 h",
        restart_strategy__type="fixed-delay",
        restart_strategy__fixed_delay__attempts="2",
        restart_strategy__fixed_delay__delay="1 ms",
        sink__committer__retries="0",
    )
    sink = FileSink.for_row_format(str(root / "out"), Encoder.simple_string_encoder()).build()
    env.from_collection(["a", "b"], Types.STRING()).sink_to(sink)
    with pytest.raises(CommitFailedError):
        env.execute("failed commits")
    return calls


def test_a_commit_that_can_never_succeed_ends_the_job_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = LostPendingFileError("/a", "/b")
    assert (
        calls_until_the_job_fails(
            tmp_path, monkeypatch, lambda r: r.signal_failed_with_known_reason(lost)
        )
        == 1
    )


@pytest.mark.parametrize(
    "signal",
    [
        lambda request: request.retry_later(),
        lambda request: request.signal_failed_with_unknown_reason(OSError("no answer")),
    ],
)
def test_a_commit_that_may_succeed_later_is_retried_by_the_next_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signal: Callable[[CommitRequest], None]
) -> None:
    assert calls_until_the_job_fails(tmp_path, monkeypatch, signal) == 3


def test_committables_known_to_be_committed_are_not_committed_again(tmp_path: Path) -> None:
    program = Program(tmp_path, [Burst(range(30)), Idle()], interval="1 h")
    job = program.launch()
    wait_for_records(job, 30)
    n = checkpoint(job)
    eventually(lambda: n in program.journal().commits_done)
    die(job)
    # Removed by a reader of the output: the sink cannot see that it was there.
    shown = program.lines()
    shutil.rmtree(tmp_path / program.output)
    after = Program(tmp_path, [Burst(range(30)), Burst(range(30, 60))])
    after.run()
    assert compare(counted(60), [*shown, *after.lines()]).is_exactly_once


def test_committables_not_known_to_be_committed_are_committed_by_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(tmp_path, [Burst(range(30)), Idle()], interval="1 h")
    with monkeypatch.context() as patched:
        patched.setattr(CompletedCheckpointStore, "commits_done", lambda *_: None)
        job = program.launch()
        wait_for_records(job, 30)
        checkpoint(job)
        eventually(lambda: len(program.lines()) == 30)
        die(job)
    shutil.rmtree(tmp_path / program.output)
    with pytest.raises(CommitFailedError, match="LostPendingFileError"):
        Program(tmp_path, [Burst(range(30))]).run()


@pytest.mark.parametrize("dies", [False, True])
def test_what_is_committed_while_the_next_checkpoint_completes_is_not_committed_with_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """Its files are moved away at once; with `dies` the next commit is left to the next attempt."""
    clock, may_go, moved = ManualClock(), threading.Event(), tmp_path / "moved"
    script = [Burst(range(30)), Pause(10), Burst(range(30, 60)), Idle()]
    program = Program(tmp_path, script, interval="1 h", clock=clock)
    real, committed = PartFileCommitter.commit, list[int]()

    def commit(self: PartFileCommitter, requests: Sequence[CommitRequest]) -> None:
        assert may_go.wait(20)
        committed.append(len(requests))
        if dies and len(committed) == 2:
            raise ConnectionError
        real(self, requests)
        for path in finished_files(tmp_path / program.output):
            path.rename(moved / path.name)

    moved.mkdir()
    monkeypatch.setattr(PartFileCommitter, "commit", commit)
    job = program.launch()
    wait_for_records(job, 30)
    checkpoint(job)
    clock.advance(10)
    wait_for_records(job, 60)
    last = checkpoint(job)
    may_go.set()
    eventually(lambda: last in program.journal().commits_done or job.wait_for_end(0))
    assert last in program.journal().commits_done
    assert committed == ([2, 2, 2] if dies else [2, 2])
    assert compare(counted(60), read_lines(moved)).is_exactly_once
    die(job)
