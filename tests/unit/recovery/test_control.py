from pathlib import Path

import pytest

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.ids import JobKey
from penstock.recovery import control
from penstock.recovery.control import (
    Answer,
    Cancel,
    Checkpoint,
    Control,
    Metrics,
    Request,
    Savepoint,
    Stop,
    Watch,
)
from penstock.storage.local_storage import LocalStorage
from tests.local_paths import local

DONE = Answer(True, "done", "/sp/1")


@pytest.fixture
def job(tmp_path: Path) -> JobDir:
    return JobDir(tmp_path, JobKey("count"))


@pytest.mark.parametrize(
    "request_",
    [Savepoint(), Savepoint("/sp"), Stop(), Stop(True, "/sp"), Cancel(), Checkpoint(), Watch(2.5)],
    ids=repr,
)
def test_every_request_reaches_the_driver_and_its_answer_comes_back(
    job: JobDir, request_: Request
) -> None:
    client, driver = Control(job), Control(job)
    asked = client.submit(request_)
    assert client.answer(asked) is None
    assert driver.pending() == [(asked, request_)]
    assert driver.pending() == [(asked, request_)]
    assert driver.reply(asked, DONE)
    assert client.answer(asked) == DONE
    assert driver.pending() == []


def test_requests_come_in_the_order_they_were_made(job: JobDir) -> None:
    times = iter([3.0, 1.0, 2.0])
    client = Control(job, lambda: next(times))
    third, first, second = (client.submit(Savepoint(path)) for path in ("3", "1", "2"))
    assert [id_ for id_, _ in Control(job).pending()] == [first, second, third]


def test_two_requests_in_one_moment_are_two(job: JobDir) -> None:
    client = Control(job, lambda: 1.0)
    assert client.submit(Cancel()) != client.submit(Cancel())
    assert len(client.pending()) == 2


def test_a_request_is_answered_once(job: JobDir) -> None:
    control = Control(job)
    asked = control.submit(Checkpoint())
    assert control.reply(asked, DONE)
    assert not control.reply(asked, Answer(False, "too late"))
    assert control.answer(asked) == DONE


def test_a_new_driver_answers_for_a_dead_one(job: JobDir) -> None:
    client = Control(job)
    asked = [client.submit(Savepoint()), client.submit(Stop())]
    new = Control(job)
    assert new.reject_abandoned() == asked
    for id_ in asked:
        answer = client.answer(id_)
        assert answer is not None
        assert not answer.ok
        assert "the driver died before it answered" in answer.message
    later = client.submit(Savepoint())
    assert new.pending() == [(later, Savepoint())]


def test_a_driver_that_died_between_answer_and_tidying_has_answered(
    job: JobDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    control = Control(job)
    asked = control.submit(Cancel())
    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "delete", die)
        with pytest.raises(Killed):
            control.reply(asked, DONE)
    new = Control(job)
    assert new.pending() == []
    assert new.reject_abandoned() == []
    assert new.answer(asked) == DONE


def test_an_answer_that_could_not_be_written_leaves_the_request_open(
    job: JobDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    control = Control(job)
    asked = control.submit(Cancel())
    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "create", fail)
        with pytest.raises(OSError, match="No space"):
            control.reply(asked, DONE)
    assert control.pending() == [(asked, Cancel())]


def test_answers_are_removed_after_an_hour(job: JobDir) -> None:
    now = [0.0]
    control = Control(job, lambda: now[0])
    first = control.submit(Cancel())
    control.reply(first, DONE)
    now[0] = 3599.0
    second = control.submit(Cancel())
    control.reply(second, DONE)
    assert control.answer(first) == DONE
    now[0] = 3601.0
    control.reply(control.submit(Cancel()), DONE)
    assert control.answer(first) is None
    assert control.answer(second) == DONE


def test_what_the_driver_cannot_read_is_answered(job: JobDir) -> None:
    control = Control(job)
    asked = control.submit(Cancel())
    (path,) = local(job.control).iterdir()
    path.write_bytes(b'{"request":{"type":"Rescale"},"time":1.0}')
    assert control.pending() == []
    answer = control.answer(asked)
    assert answer is not None
    assert "cannot read the request: Invalid value 'Rescale'" in answer.message


def test_there_is_nothing_to_do_for_a_job_without_requests(job: JobDir) -> None:
    control = Control(job)
    assert control.pending() == []
    assert control.reject_abandoned() == []
    assert control.answer("nobody") is None


def test_large_answers_are_kept_as_long_as_they_are_few(
    job: JobDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_ANSWER_BYTES_KEPT", 10_000)
    client, driver = Control(job), Control(job)
    asked = [client.submit(Metrics()) for _ in range(12)]
    for id_ in asked:
        assert driver.reply(id_, Answer(True, "x" * 3000))
        assert client.answer(id_) is not None
    assert [client.answer(id_) is not None for id_ in asked] == [False] * 9 + [True] * 3
    monkeypatch.setattr(control, "_ANSWER_BYTES_KEPT", 10)
    last = client.submit(Metrics())
    driver.reply(last, Answer(True, "too large for itself"))
    assert client.answer(last) is not None
