from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import pytest

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.connectors.contracts.committing import CommitReport, commit_all
from penstock.connectors.two_phase.sink import (
    AlreadyCommitted,
    AtLeastOnceSink,
    RetryLater,
    TwoPhaseSink,
)
from penstock.connectors.two_phase.sink import _Prepared as Prepared
from penstock.connectors.two_phase.transaction_register import TransactionContext
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import NumberSequenceSource
from penstock.errors import (
    AbortedTransactionError,
    CommitFailedError,
    CorruptStagedRecordsError,
    LostStagedFileError,
)
from penstock.testing import ScriptedFailures, run_inline
from tests.contracts.sink_harness import Attempt, Case, Killed, files_in

Aborted = tuple[str, bool, str | None]
"""The name, whether there was a transaction, and the committable."""


class Server:
    """Prepares and commits by name; fails or stops responding when a test sets it."""

    def __init__(self) -> None:
        self.opened: list[TransactionContext] = []
        self.chunks: list[int] = []
        self.prepared: dict[str, list[Any]] = {}
        self.committed: dict[str, list[Any]] = {}
        self.aborted: list[Aborted] = []
        self.fails: dict[str, BaseException] = {}
        self.lock = threading.Lock()  # cannot be pickled

    def may_fail(self, where: str) -> None:
        if where in self.fails:
            raise self.fails.pop(where)

    def open(self, context: TransactionContext) -> tuple[str, list[Any]]:
        self.opened.append(context)
        self.may_fail("open")
        return context.name, []

    def write(self, transaction: tuple[str, list[Any]], values: list[Any]) -> None:
        self.may_fail("write")
        self.chunks.append(len(values))
        transaction[1].extend(values)

    def prepare(self, transaction: tuple[str, list[Any]]) -> str:
        self.may_fail("prepare")
        self.prepared[transaction[0]] = transaction[1]
        self.may_fail("prepare's answer")
        return transaction[0]

    def commit(self, name: str) -> None:
        self.may_fail("commit")
        if name in self.committed:
            raise AlreadyCommitted
        self.committed[name] = self.prepared.pop(name)
        self.may_fail("commit's answer")

    def abort(self, context: TransactionContext, transaction: Any, committable: str | None) -> None:
        self.may_fail("abort")
        self.aborted.append((context.name, transaction is not None, committable))
        self.prepared.pop(context.name, None)

    def sink(self) -> TwoPhaseSink:
        return TwoPhaseSink(
            open=self.open,
            write=self.write,
            prepare=self.prepare,
            commit=self.commit,
            abort=self.abort,
        )

    def shown(self) -> list[Any]:
        return [value for values in self.committed.values() for value in values]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def case(server: Server) -> Case:
    return Case(server.sink(), server.shown)


@pytest.fixture
def attempt(case: Case, tmp_path: Path) -> Attempt:
    return Attempt(case, tmp_path)


def test_functions_stay_where_they_are(server: Server, tmp_path: Path) -> None:
    for sink in (server.sink(), AtLeastOnceSink(server.chunks.extend)):
        copy = cloudpickle.loads(cloudpickle.dumps(sink))
        with pytest.raises(TypeError, match="only works where it was built"):
            Attempt(Case(copy, list), tmp_path)


def test_each_subtask_with_values_gets_a_transaction(server: Server, attempt: Attempt) -> None:
    attempt.publish(["a"], [])
    attempt.publish(["b", "c"], [])
    committables = attempt.snapshot(7).committables
    attempt.publish(["d"], ["e"])
    committables += attempt.snapshot(8).committables
    contexts = [(c.attempt, c.checkpoint, c.subtask, c.parallelism) for c in server.opened]
    assert contexts == [("a1", 7, 0, 2), ("a1", 8, 0, 2), ("a1", 8, 1, 2)]
    assert list(server.prepared.values()) == [["a", "b", "c"], ["d"], ["e"]]
    assert attempt.commit(committables) == CommitReport(committed=3)
    assert server.shown() == ["a", "b", "c", "d", "e"]


def test_names_are_safe_and_never_repeat(server: Server, case: Case, tmp_path: Path) -> None:
    for directory in (tmp_path / "here", tmp_path / "there"):
        attempt = Attempt(case, directory)
        attempt.publish(["a"], ["b"])
        attempt.snapshot()
    names = [context.name for context in server.opened]
    assert len(set(names)) == 4
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,240}", name) for name in names)


def test_values_are_written_in_chunks_of_a_bounded_size(server: Server, attempt: Attempt) -> None:
    values = [str(number) for number in range(10_000)]
    attempt.publish(values, [])
    attempt.commit(attempt.snapshot().committables)
    assert server.chunks == [4096, 4096, 1808]
    assert server.shown() == values


@pytest.mark.parametrize("where", ["open", "write", "prepare", "prepare's answer"])
def test_what_fails_at_a_barrier_is_aborted_and_prepared_again_under_another_name(
    server: Server, attempt: Attempt, where: str
) -> None:
    attempt.publish(["a"], [])
    server.fails[where] = ConnectionError(where)
    with pytest.raises(ConnectionError):
        attempt.snapshot(1)
    (failed,) = server.opened
    assert server.aborted == [(failed.name, where != "open", None)]
    assert server.prepared == {}
    attempt.commit(attempt.snapshot(2).committables)
    assert server.shown() == ["a"]
    assert [context.checkpoint for context in server.opened] == [1, 1]
    assert server.opened[1].name != failed.name
    attempt.sweep([])
    assert len(server.aborted) == 1


def test_subtasks_that_are_prepared_are_not_prepared_again(
    server: Server, attempt: Attempt
) -> None:
    attempt.publish(["a"], ["b"])
    prepare_first = server.prepare

    def fail_at_the_second(transaction: tuple[str, list[Any]]) -> str:
        if server.prepared:
            server.may_fail("second")
        return prepare_first(transaction)

    server.prepare = fail_at_the_second  # type: ignore[method-assign]
    server.fails["second"] = OSError("full")
    attempt = Attempt(Case(server.sink(), server.shown), attempt._work_dir.parent, "a2")
    attempt.publish(["a"], ["b"])
    with pytest.raises(OSError, match="full"):
        attempt.snapshot(1)
    assert len(attempt.snapshot(2).committables) == 2
    assert [context.subtask for context in server.opened] == [0, 1, 1]


def test_an_abort_that_fails_is_tried_again_by_the_next_attempt(
    server: Server,
    case: Case,
    attempt: Attempt,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempt.publish(["a"], [])
    server.fails = {"prepare's answer": ConnectionError(), "abort": ConnectionError()}
    with caplog.at_level(logging.WARNING), pytest.raises(ConnectionError):
        attempt.snapshot(1)
    (failed,) = server.opened
    assert f"{failed.name} could not be aborted" in caplog.text
    assert list(server.prepared) == [failed.name]
    Attempt(case, tmp_path, "a2").sweep([])
    assert server.aborted == [(failed.name, False, None)]
    assert files_in(tmp_path / "work") == []


@pytest.mark.parametrize("where", ["open", "write", "prepare", "prepare's answer"])
def test_what_a_driver_leaves_that_died_at_a_barrier_is_aborted_by_name(
    server: Server, case: Case, attempt: Attempt, tmp_path: Path, where: str
) -> None:
    attempt.publish(["a"], [])
    server.fails[where] = Killed()
    with pytest.raises(Killed):
        attempt.snapshot(1)
    successor = Attempt(case, tmp_path, "a2")
    successor.sweep([])
    successor.sweep([])
    assert server.aborted == [(server.opened[0].name, False, None)]
    assert server.prepared == {}
    assert files_in(tmp_path / "work") == []


def test_prepared_transactions_that_no_snapshot_holds_are_aborted_with_their_committable(
    server: Server, case: Case, attempt: Attempt, tmp_path: Path
) -> None:
    kept: list[bytes] = []
    for checkpoint in (1, 2, 3):
        attempt.publish([str(checkpoint)], [])
        kept += attempt.snapshot(checkpoint).committables
    Attempt(case, tmp_path, "a2").sweep(kept[1:2])
    names = [context.name for context in server.opened]
    assert sorted(server.aborted) == sorted((n, False, n) for n in (names[0], names[2]))
    assert list(server.prepared) == [names[1]]


def test_a_later_attempt_is_not_swept_by_an_earlier_one(
    server: Server, case: Case, attempt: Attempt, tmp_path: Path
) -> None:
    successor = Attempt(case, tmp_path, "a10")
    successor.publish(["a"], [])
    committables = successor.snapshot(1).committables
    successor.publish(["b"], [])
    attempt.sweep([])
    assert server.aborted == []
    successor.commit([*committables, *successor.snapshot(2).committables])
    assert server.shown() == ["a", "b"]


@pytest.mark.parametrize("where", ["write", "prepare"])
def test_a_driver_that_was_taken_over_at_a_barrier_prepares_nothing(
    server: Server, case: Case, tmp_path: Path, where: str
) -> None:
    original = getattr(server, where)

    def slowly(*given: Any) -> Any:
        Attempt(case, tmp_path, "a2").sweep([])
        return original(*given)

    setattr(server, where, slowly)
    zombie = Attempt(Case(server.sink(), server.shown), tmp_path, "a1")
    zombie.publish(["a"], [])
    with pytest.raises(AbortedTransactionError, match="by a later attempt"):
        zombie.snapshot(1)
    assert server.prepared == {}
    assert files_in(tmp_path / "work" / "job" / "step" / "transactions") == []


def commit_once(attempt: Attempt, committables: Sequence[bytes], retries: int) -> CommitReport:
    return commit_all(
        attempt.committer(), committables, retries=retries, pause=lambda _: None, step="the sink"
    )


def test_a_commit_that_has_to_wait_lets_nothing_pass(server: Server, attempt: Attempt) -> None:
    committables: list[bytes] = []
    for checkpoint in (1, 2, 3):
        attempt.publish([str(checkpoint)], [])
        committables += attempt.snapshot(checkpoint).committables
    server.fails["commit"] = RetryLater()
    report = commit_once(attempt, committables, retries=1)
    assert report == CommitReport(committed=3, retried=3)
    assert server.shown() == ["1", "2", "3"]


@pytest.mark.parametrize("where", ["commit", "commit's answer"])
def test_a_failed_commit_stops_the_rest_and_is_repeated(
    server: Server, case: Case, attempt: Attempt, tmp_path: Path, where: str
) -> None:
    attempt.publish(["a"], ["b"])
    committables = attempt.snapshot(1).committables
    server.fails[where] = ConnectionError("gone")
    with pytest.raises(CommitFailedError, match="it is not known whether 1 commit succeeded: Con"):
        attempt.commit(committables)
    assert len(server.committed) == (where != "commit")
    successor = Attempt(case, tmp_path, "a2")
    assert successor.commit(committables).already_committed == (where != "commit")
    assert server.shown() == ["a", "b"]
    successor.sweep([])
    assert server.aborted == []
    assert files_in(tmp_path / "work") == []


def test_what_may_be_committed_is_never_aborted(
    server: Server,
    case: Case,
    attempt: Attempt,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempt.publish(["a"], [])
    committables = attempt.snapshot(1).committables
    server.fails["commit's answer"] = Killed()
    with pytest.raises(Killed):
        attempt.commit(committables)
    with caplog.at_level(logging.WARNING):
        Attempt(case, tmp_path, "a2").sweep([])
    assert f"{server.opened[0].name} may or may not be committed" in caplog.text
    assert server.aborted == []


def test_another_job_that_commits_protects_from_being_aborted(
    server: Server, case: Case, attempt: Attempt, tmp_path: Path
) -> None:
    attempt.publish(["a"], [])
    savepoint = attempt.snapshot(1).committables
    Attempt(case, tmp_path, job="other").commit(savepoint)
    Attempt(case, tmp_path, "a2").sweep([])
    assert server.aborted == []
    assert server.shown() == ["a"]


def test_what_is_committed_from_a_moved_directory_is_not_aborted(
    server: Server, case: Case, tmp_path: Path
) -> None:
    attempt = Attempt(case, tmp_path / "here")
    attempt.publish(["a"], ["b"])
    first, _ = attempt.snapshot(1).committables
    (tmp_path / "here").rename(tmp_path / "there")
    moved = Attempt(case, tmp_path / "there", "a2")
    moved.commit([first])
    moved.sweep([])
    assert server.shown() == ["a"]
    assert [committable for *_, committable in server.aborted] == [server.opened[1].name]
    assert files_in(tmp_path) == []


def test_a_sink_may_do_without_abort(server: Server, tmp_path: Path) -> None:
    sink = TwoPhaseSink(
        open=server.open, write=server.write, prepare=server.prepare, commit=server.commit
    )
    attempt = Attempt(Case(sink, server.shown), tmp_path)
    attempt.publish(["a"], [])
    server.fails["write"] = ConnectionError()
    with pytest.raises(ConnectionError):
        attempt.snapshot(1)
    attempt.sweep([])
    assert files_in(tmp_path / "work") == []


def test_values_that_are_lost_before_the_barrier_are_an_error(
    attempt: Attempt, tmp_path: Path
) -> None:
    attempt.publish(["a" * 100_000], [])
    for path in files_in(tmp_path / "work"):
        path.unlink()
    with pytest.raises(
        LostStagedFileError, match=r"staged file .* has 0 bytes, but its task wrote 1\d{5}"
    ):
        attempt.snapshot(1)


def test_one_function_gets_a_list_per_subtask_and_micro_batch(tmp_path: Path) -> None:
    written: list[list[Any]] = []
    attempt = Attempt(Case(AtLeastOnceSink(written.append), list), tmp_path)
    attempt.publish(["a", "b"], ["c"])
    attempt.publish([], ["d"])
    assert written == [["a", "b"], ["c"], ["d"]]


def run_job(sink: Any, directory: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(
            {
                "execution.checkpointing.dir": str(directory / "checkpoints"),
                "penstock.checkpoint.records": "20",
                "penstock.micro-batch.max-records": "10",
                "execution.checkpointing.tolerable-failed-checkpoints": "3",
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.delay": "0 ms",
                "restart-strategy.fixed-delay.attempts": "5",
            }
        )
    )
    numbers = env.from_source(
        NumberSequenceSource(1, 200), WatermarkStrategy.no_watermarks(), "numbers"
    )
    failing = numbers.map(ScriptedFailures(directory, on=[50, 120]), Types.LONG())
    failing.sink_to(sink).name("the sink")
    run_inline(env).execute("numbers")


def test_a_job_that_fails_and_resumes_makes_everything_visible_once(
    server: Server, tmp_path: Path
) -> None:
    server.fails = {"prepare": OSError("once"), "commit": RetryLater()}
    run_job(server.sink(), tmp_path)
    assert sorted(server.shown()) == list(range(1, 201))
    assert server.prepared == {}


def test_a_job_with_one_function_writes_everything_at_least_once(tmp_path: Path) -> None:
    written: list[int] = []
    run_job(AtLeastOnceSink(written.extend), tmp_path)
    assert set(written) == set(range(1, 201))


@pytest.mark.parametrize("forges", ["register", "token"])
def test_a_forged_transaction_is_not_committed_and_removes_no_file(
    server: Server, attempt: Attempt, tmp_path: Path, forges: str
) -> None:
    attempt.publish(["a"], [])
    (committable,) = attempt.snapshot().committables
    prepared = msgspec.msgpack.decode(committable, type=Prepared)
    if forges == "register":
        forged = msgspec.structs.replace(prepared, register=str(tmp_path))
    else:
        context = msgspec.structs.replace(prepared.context, token="../../../secret")
        forged = msgspec.structs.replace(prepared, context=context)
    before = files_in(tmp_path)
    with pytest.raises(CommitFailedError, match="UnsafeNameError") as caught:
        attempt.commit([msgspec.msgpack.encode(forged)])
    assert caught.value.kind == "impossible"
    assert files_in(tmp_path) == before
    assert server.committed == {}


def test_values_that_were_changed_on_the_disk_are_not_written(
    server: Server, attempt: Attempt, tmp_path: Path
) -> None:
    attempt.publish(["x" * 200_000], [])
    pre_commit = attempt.publisher.at_barrier(1, flush=True)
    (file,) = [path for path in files_in(tmp_path) if path.suffix == ".values"]
    file.write_bytes(file.read_bytes().replace(b"xx", b"yx", 1))
    with pytest.raises(CorruptStagedRecordsError):
        pre_commit()
    assert server.prepared == {}
