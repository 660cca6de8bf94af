"""What every sink with a committer guarantees: each record once, whatever crashes when."""

import contextlib
import functools
import hashlib
import itertools
import os
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from tests.contracts.sink_harness import (
    FILES_IN_S3,
    GROWING_IN_S3,
    LARGE,
    TRANSACTIONAL,
    WITH_SERVERS,
    WITHOUT_SERVERS,
    Attempt,
    Case,
    Killed,
    Lines,
    Make,
    collecting,
    files_in,
    growing_files,
    killed_at,
    name_of,
    parquet_files,
    rolled_files,
    some_lines,
)


@pytest.fixture(params=TRANSACTIONAL, ids=name_of)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    with contextlib.closing(request.param(tmp_path, request.getfixturevalue)) as case:
        yield case


def test_nothing_is_visible_before_its_commit(case: Case, tmp_path: Path) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], ["b"])
    snapshot = attempt.snapshot()
    assert case.shown() == []
    attempt.commit(snapshot.committables)
    assert sorted(case.shown()) == ["a", "b"]
    assert snapshot.state == []


def test_committing_twice_is_committing_once(case: Case, tmp_path: Path) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], ["b"])
    committables = attempt.snapshot().committables
    assert attempt.commit(committables).committed == len(committables)
    assert attempt.commit(committables).already_committed == len(committables)
    assert attempt.commit([*committables, *committables]).committed == 0
    assert sorted(case.shown()) == ["a", "b"]


def test_what_a_dead_attempt_pre_committed_is_committed_by_the_next(
    case: Case, tmp_path: Path
) -> None:
    dead = Attempt(case, tmp_path)
    dead.publish(["a"], ["b"])
    committables = dead.snapshot().committables
    dead.publish(["never"], ["seen"])
    dead.snapshot(2)
    alive = Attempt(case, tmp_path, "a2")
    alive.commit(committables)
    alive.sweep(committables)
    assert sorted(case.shown()) == ["a", "b"]
    alive.commit(committables)
    alive.publish(["c"], [])
    alive.commit(alive.snapshot(3).committables)
    alive.sweep([])
    assert sorted(case.shown()) == ["a", "b", "c"]
    assert case.leftovers() == []


def test_a_commit_removes_what_it_no_longer_needs(case: Case, tmp_path: Path) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish(["x" * 100_000], ["b"])
    attempt.publish(["a"], ["b"])
    attempt.commit(attempt.snapshot().committables)
    kept = [path for path in case.leftovers() if path.is_file() and path.suffix != ".delivered"]
    assert kept == []


def test_sweeping_spares_what_is_named(case: Case, tmp_path: Path) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish(["x" * 100_000], ["b"])
    snapshot = attempt.snapshot(flush=False)
    attempt.publish(["later"], [])
    attempt.snapshot(2)
    Attempt(case, tmp_path, "a2").sweep([*snapshot.committables, *snapshot.state])
    third = Attempt(case, tmp_path, "a3", snapshot.state)
    third.commit(snapshot.committables)
    third.commit(third.snapshot(3).committables)
    assert sorted(case.shown()) == ["b", "x" * 100_000]


def test_sweeping_spares_what_a_later_attempt_has_staged(case: Case, tmp_path: Path) -> None:
    zombie = Attempt(case, tmp_path, "a9")
    zombie.publish(["never seen"], [])
    zombie.snapshot()
    successor = Attempt(case, tmp_path, "a10")
    successor.publish([LARGE], ["b"])
    snapshot = successor.snapshot(2)
    successor.publish(["c"], [])
    # A sink that fences may reject an old attempt instead.
    with contextlib.suppress(PenstockError):
        zombie.sweep([])
    successor.commit(snapshot.committables)
    successor.commit(successor.snapshot(3).committables)
    assert sorted(case.shown()) == sorted(["b", "c", LARGE])


def test_attempts_and_subtasks_never_collide(case: Case, tmp_path: Path) -> None:
    committables: list[bytes] = []
    for name in ("a1", "a2"):
        attempt = Attempt(case, tmp_path, name)
        attempt.publish(["x"], ["x"])
        committables += attempt.snapshot().committables
    attempt.commit(committables)
    assert case.shown() == ["x"] * 4


def test_what_two_jobs_restored_is_committed_once(case: Case, tmp_path: Path) -> None:
    original = Attempt(case, tmp_path)
    original.publish(["a"], ["b"])
    savepoint = original.snapshot(1)
    assert savepoint.state == []
    other = Attempt(case, tmp_path, job="other")
    other.commit(savepoint.committables)
    other.sweep(savepoint.committables)
    assert sorted(case.shown()) == ["a", "b"]
    original.publish(["of the original"], [])
    snapshot = original.snapshot(2)
    other.sweep([])
    other.publish(["of the other"], [])
    report = original.commit([*savepoint.committables, *snapshot.committables])
    assert report.already_committed == len(savepoint.committables)
    other.commit([*savepoint.committables, *other.snapshot(1).committables])
    assert sorted(case.shown()) == ["a", "b", "of the original", "of the other"]


def test_the_first_checkpoint_after_a_restore_needs_nothing_of_the_job_that_was_restored(
    case: Case, tmp_path: Path
) -> None:
    original = Attempt(case, tmp_path)
    original.publish(["a"], ["b"])
    held = original.snapshot(1, flush=False)
    other = Attempt(case, tmp_path, job="other", restored=held.state, commits=held.committables)
    other.publish(["c"], [])
    first = other.snapshot(1, flush=False)
    original.discard([*held.state, *held.committables], [])
    original.sweep([])
    again = Attempt(
        case, tmp_path, "a2", job="other", restored=first.state, commits=first.committables
    )
    again.commit(again.snapshot(2).committables)
    again.sweep([])
    assert sorted(case.shown()) == ["a", "b", "c"]
    assert case.leftovers() == []


def test_two_jobs_of_one_id_do_not_meet(case: Case, tmp_path: Path) -> None:
    """They differ in their checkpoint directories only, and write to the same place."""
    instances = {"one": hashed(tmp_path / "one"), "two": hashed(tmp_path / "two")}
    job_id = f"job-{hashed(tmp_path)}"

    def started(directory: str, name: str) -> Attempt:
        place, instance = tmp_path / directory, instances[directory]
        return Attempt(case, place, name, job_id=job_id, job_instance=instance)

    one = started("one", "a1")
    one.publish([LARGE + "1"], ["b1"])
    pending = one.snapshot()
    one.publish(["c1"], ["d1"])
    two = started("two", "a1")
    two.sweep([])
    two.publish([LARGE + "2"], ["b2"])
    two.publish(["c2"], ["d2"])
    two.commit(two.snapshot().committables)
    two.sweep([])
    later = one.snapshot(2)
    one.commit([*pending.committables, *later.committables])
    again = started("one", "a2")
    again.commit(later.committables)
    again.sweep([])
    expected = {f"{text}{job}" for text in (LARGE, "b", "c", "d") for job in (1, 2)}
    assert sorted(case.shown()) == sorted(expected)
    assert case.leftovers() == []


def test_what_a_lost_try_staged_can_be_removed(case: Case, tmp_path: Path) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.stage(0, [LARGE])
    attempt.stage(1, [LARGE])
    before = set(files_in(tmp_path))
    attempt.stage(0, [LARGE], task_attempt=10)
    attempt.publisher.discard_staged("a1-0-0-1-")
    gone = {path for path in before if not path.exists()}
    assert all(path.name.startswith("a1-0-0-1-") for path in gone)
    attempt.publisher.discard_staged("a1-0-0-")
    assert [path for path in case.leftovers() if not path.is_dir()] == []


@pytest.mark.parametrize(
    "case",
    [make for make in TRANSACTIONAL if make not in (*FILES_IN_S3, *GROWING_IN_S3)],
    ids=name_of,
    indirect=True,
)
def test_a_write_on_a_full_disk_leaves_no_file(case: Case, tmp_path: Path) -> None:
    attempt = Attempt(case, tmp_path)
    writer = attempt.writer(0)

    def write() -> None:
        for _ in range(5):
            writer.write(case.record(os.urandom(30_000).hex()))
        writer.stage()

    with files_up_to(50_000), pytest.raises(OSError, match="File too large"):
        write()
    writer.abort()
    assert [path for path in files_in(tmp_path) if path.name.startswith("a1-0-")] == []


@pytest.mark.parametrize("make", [collecting, rolled_files, parquet_files], ids=name_of)
def test_a_pre_commit_on_a_full_disk_leaves_no_file(
    make: Make, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    case = make(tmp_path, request.getfixturevalue)
    attempt = Attempt(case, tmp_path)
    texts = [os.urandom(10_000).hex() for _ in range(5)]
    for text in texts:
        attempt.publish([text], [])
    before = files_in(tmp_path)
    pre_commit = attempt.publisher.at_barrier(1, flush=True)
    with files_up_to(50_000), pytest.raises(OSError, match="File too large"):
        pre_commit()
    assert sorted(files_in(tmp_path)) == sorted(before)
    attempt.commit(attempt.snapshot(2).committables)
    assert case.shown() == texts


@contextlib.contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Let no file become larger: the write after that fails, as on a full disk."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))


def hashed(directory: Path) -> str:
    return hashlib.blake2b(str(directory).encode(), digest_size=6).hexdigest()


def test_discarding_spares_what_is_kept_and_what_came_since(case: Case, tmp_path: Path) -> None:
    attempt = Attempt(case, tmp_path)
    snapshots = []
    for checkpoint, text in enumerate(("a", LARGE, "c"), start=1):
        attempt.publish([text], [])
        snapshots.append(attempt.snapshot(checkpoint))
    attempt.commit(snapshots[0].committables)
    attempt.commit(snapshots[1].committables)
    attempt.discard(snapshots[0].committables, snapshots[1].committables)
    attempt.discard(snapshots[0].committables, snapshots[1].committables)
    attempt.commit(snapshots[2].committables)
    successor = Attempt(case, tmp_path, "a2")
    successor.commit(snapshots[1].committables)
    assert sorted(case.shown()) == ["a", "c", LARGE]


def test_values_of_a_subtask_keep_their_order(case: Case, tmp_path: Path) -> None:
    attempt = Attempt(case, tmp_path)
    numbers = iter(range(1000))
    for checkpoint in range(1, 5):
        for _ in range(3):
            attempt.publish([str(next(numbers)) for _ in range(4)], [])
        attempt.commit(attempt.snapshot(checkpoint, flush=checkpoint == 4).committables)
    assert case.shown() == [str(number) for number in range(48)]


@pytest.mark.parametrize(
    # Collected values end with the process that collects them.
    "case",
    [make for make in TRANSACTIONAL if make is not collecting],
    ids=name_of,
    indirect=True,
)
def test_a_commit_that_died_before_any_line_is_completed_by_the_next_attempt(
    case: Case, tmp_path: Path
) -> None:
    numbers = itertools.count(1)
    expected: list[str] = []

    def owing() -> tuple[Attempt, list[bytes]]:
        number = next(numbers)
        attempt = Attempt(case, tmp_path, f"a{number}")
        texts = [f"{number} {LARGE}", f"{number} b"]
        attempt.publish(texts[:1], texts[1:])
        expected.extend(texts)
        return attempt, attempt.snapshot(number).committables

    attempt, committables = owing()
    with Lines() as lines:
        attempt.commit(committables)
    for line in some_lines(lines.run, case.deaths):
        attempt, committables = owing()
        with Lines(dies_before=line), contextlib.suppress(Killed):
            attempt.commit(committables)
        case.close_files_of_killed()
        successor = Attempt(case, tmp_path, f"a{next(numbers)}")
        successor.commit(committables)
        successor.sweep(committables)
        assert sorted(case.shown()) == sorted(expected), line
    successor.sweep([])
    assert case.leftovers() == []


def test_a_pre_commit_that_dies_before_any_line_leaves_no_files(case: Case, tmp_path: Path) -> None:
    numbers = itertools.count(1)

    def publishing(texts: list[str]) -> tuple[int, Attempt]:
        number = next(numbers)
        attempt = Attempt(case, tmp_path, f"a{number}")
        attempt.sweep([])
        attempt.publish(texts[:1], texts[1:])
        return number, attempt

    number, attempt = publishing(["never", "committed"])
    with Lines() as lines:
        attempt.snapshot(number)
    for line in some_lines(lines.run, case.deaths):
        number, attempt = publishing([f"lost {LARGE}", "lost"])
        with Lines(dies_before=line), contextlib.suppress(Killed):
            attempt.snapshot(number)
        case.close_files_of_killed()
    number, attempt = publishing([f"won {LARGE}", "won"])
    attempt.commit(attempt.snapshot(number).committables)
    attempt.sweep([])
    assert sorted(case.shown()) == ["won", f"won {LARGE}"]
    assert case.leftovers() == []


def test_a_commit_that_died_anywhere_is_completed_by_the_next(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected: list[str] = []
    for operation in itertools.count(step=case.stride):
        attempt = Attempt(case, tmp_path, f"a{operation}")
        texts = [f"{operation} {LARGE}", f"{operation} b"]
        attempt.publish(texts[:1], [])
        attempt.publish(texts[1:], [])
        expected += texts
        committables = attempt.snapshot().committables
        with killed_at(operation, monkeypatch) as done, contextlib.suppress(Killed):
            attempt.commit(committables)
        attempt.commit(committables)
        assert sorted(case.shown()) == sorted(expected)
        attempt.sweep([])
        assert case.leftovers() == []
        if len(done) <= operation:
            break
    assert operation > 2


def test_a_pre_commit_that_failed_anywhere_is_made_up_for_by_the_next(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected: list[str] = []
    for operation in itertools.count(step=case.stride):
        attempt = Attempt(case, tmp_path, f"a{operation}")
        texts = [f"{operation} {LARGE}", f"{operation} b"]
        attempt.publish(texts, [])
        got: list[bytes] = []
        with killed_at(operation, monkeypatch, OSError) as done:
            pre_commit = attempt.publisher.at_barrier(1, flush=False)
            with contextlib.suppress(OSError):
                got += pre_commit().committables
        attempt.publish([f"{operation} c"], [])
        got += attempt.snapshot(2).committables
        expected += [*texts, f"{operation} c"]
        attempt.commit(got)
        assert sorted(case.shown()) == sorted(expected)
        if len(done) <= operation:
            break
    assert operation > 2


def test_a_pre_commit_that_never_ran_is_made_up_for_by_the_next(case: Case, tmp_path: Path) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], [])
    attempt.publisher.at_barrier(1, flush=True)
    attempt.publish(["b"], [])
    attempt.publisher.at_barrier(2, flush=True)
    attempt.commit(attempt.snapshot(3).committables)
    assert sorted(case.shown()) == ["a", "b"]


@pytest.mark.parametrize("survivor", [1, 2])
def test_pre_commits_in_the_wrong_order_leave_both_snapshots_complete(
    case: Case, tmp_path: Path, survivor: int
) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], [])
    first = attempt.publisher.at_barrier(1, flush=True)
    attempt.publish(["b"], [])
    second = attempt.publisher.at_barrier(2, flush=True)
    snapshots = {2: second(), 1: first()}
    attempt.commit(snapshots[survivor].committables)
    assert sorted(case.shown()) == ["a", "b"][:survivor]
    attempt.commit(snapshots[1].committables)
    attempt.commit(snapshots[2].committables)
    assert sorted(case.shown()) == ["a", "b"]


def test_a_snapshot_has_exactly_what_was_published_before_its_barrier(
    case: Case, tmp_path: Path
) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], [])
    pre_commit = attempt.publisher.at_barrier(1, flush=True)
    attempt.publish(["b"], [])
    attempt.commit(pre_commit().committables)
    assert case.shown() == ["a"]


@dataclass
class Checkpoint:
    """What a completed checkpoint holds: the source's position, and the sink's part of it."""

    position: int = 0
    committables: list[bytes] = field(default_factory=list)
    state: list[bytes] = field(default_factory=list)


RETAINED = 3


def held_by(checkpoints: list[Checkpoint]) -> list[bytes]:
    return [data for c in checkpoints for data in (*c.committables, *c.state)]


class Engine:
    """Runs attempts over an endless source of numbers, as the real one would."""

    def __init__(self, case: Case, directory: Path) -> None:
        self._case = case
        self._directory = directory
        self._attempts = itertools.count(1)
        self._checkpoints = itertools.count(1)
        self._retained = [Checkpoint()]
        self._start(2)

    def _start(self, parallelism: int) -> None:
        restored = self._retained[-1]
        name = f"a{next(self._attempts)}"
        self._parallelism = parallelism
        self._position = restored.position
        self._attempt = Attempt(self._case, self._directory, name, restored.state, parallelism)
        self._attempt.commit(restored.committables)
        self._attempt.sweep(held_by(self._retained))
        self._owed: list[bytes] = []

    def micro_batch(self) -> None:
        texts = [str(self._position + n) for n in range(self._parallelism)]
        self._attempt.publish(*([text] for text in texts))
        self._position += len(texts)

    def checkpoint(self, *, completes: bool, commits: bool, flush: bool = False) -> None:
        snapshot = self._attempt.snapshot(next(self._checkpoints), flush=flush)
        self._owed += snapshot.committables
        if not completes:
            return
        self._retained.append(Checkpoint(self._position, list(self._owed), snapshot.state))
        if commits:
            self._attempt.commit(self._owed)
            self._owed = []
            gone, self._retained = self._retained[:-RETAINED], self._retained[-RETAINED:]
            self._attempt.discard(held_by(gone), held_by(self._retained))

    def crash(self, parallelism: int) -> None:
        self.look_at_retained()
        self._start(parallelism)

    def look_at_retained(self) -> None:
        """Start an attempt from each of the retained checkpoints."""
        for checkpoint in self._retained:
            name = f"a{next(self._attempts)}"
            Attempt(self._case, self._directory, name, checkpoint.state).commit(
                checkpoint.committables
            )

    def finish(self) -> list[str]:
        self.checkpoint(completes=True, commits=True, flush=True)
        self._attempt.sweep([])
        return [str(number) for number in range(self._position)]


STEP: st.SearchStrategy[tuple[str, dict[str, Any]]] = st.one_of(
    st.just(("micro_batch", {})),
    st.tuples(
        st.just("checkpoint"),
        st.fixed_dictionaries(
            {"completes": st.booleans(), "commits": st.booleans(), "flush": st.booleans()}
        ),
    ),
    st.tuples(st.just("crash"), st.fixed_dictionaries({"parallelism": st.integers(1, 3)})),
)


class Run:
    """Steps of an engine with a sink, and the expected output."""

    def __init__(self, make: Make, request: pytest.FixtureRequest) -> None:
        self._make = make
        self._fixture = request.getfixturevalue

    def check(self, steps: list[tuple[str, dict[str, Any]]]) -> None:
        with (
            tempfile.TemporaryDirectory() as directory,
            contextlib.closing(self._make(Path(directory), self._fixture)) as case,
        ):
            engine = Engine(case, Path(directory))
            for step, arguments in steps:
                getattr(engine, step)(**arguments)
            expected = engine.finish()
            assert sorted(case.shown(), key=int) == expected
            assert case.leftovers() == []


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    return Run(request.param, request)


with_some_steps = functools.partial(
    settings, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("run", WITHOUT_SERVERS, ids=name_of, indirect=True)
@with_some_steps(max_examples=15)
@given(steps=st.lists(STEP, max_size=20))
def test_each_record_is_visible_once_through_crashes_and_aborts(run: Run, steps: Any) -> None:
    run.check(steps)


@pytest.mark.parametrize("run", WITH_SERVERS, ids=name_of, indirect=True)
@with_some_steps(max_examples=2, phases=[Phase.generate])
@given(steps=st.lists(STEP, min_size=10, max_size=20))
def test_each_record_is_visible_once_on_servers_too(run: Run, steps: Any) -> None:
    run.check(steps)


def test_staged_output_does_not_accumulate_with_retained_checkpoints(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    case = growing_files(tmp_path, request.getfixturevalue)
    engine = Engine(case, tmp_path)
    hidden: list[int] = []
    for _ in range(30):
        engine.micro_batch()
        engine.checkpoint(completes=True, commits=True)
        hidden.append(sum(1 for path in case.leftovers() if path.is_file()))
    # Twenty pieces of three bytes fill a part, for each of two subtasks.
    assert max(hidden) <= 2 * (20 + RETAINED), hidden
    engine.crash(2)
    expected = engine.finish()
    assert sorted(case.shown(), key=int) == expected
