import threading
from itertools import count
from pathlib import Path

import msgspec
import pytest

from penstock.checkpoint.event_log import CheckpointEvent, CheckpointEventLog, CheckpointEventRecord
from penstock.checkpoint.history import (
    CheckpointStats,
    CheckpointStatus,
    ExceptionRecord,
    History,
    OperatorStats,
    Recovery,
)
from penstock.checkpoint.storage.metadata import ChannelStats, SubtaskStats
from penstock.ids import CheckpointId
from penstock.storage.local_storage import LocalStorage


def record(n: int, status: CheckpointStatus = CheckpointStatus.COMPLETED) -> CheckpointStats:
    return CheckpointStats(n, "checkpoint", status, "a1", 1.0)


def recovery(n: int) -> Recovery:
    return Recovery(f"a{n}", n, "a worker died", 0.1, 0.2, 0.3, 0.4, 0.5, 1.0)


def failure(n: int) -> ExceptionRecord:
    return ExceptionRecord(float(n), "a1", None, "line 1\nline 2", "Traceback\n  …\n")


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(LocalStorage(tmp_path), 3, 3, 3)


# -- stories ------------------------------------------------------------------------------------


def test_an_event_log_has_its_events_in_order() -> None:
    times = count(1)
    story = CheckpointEventLog(CheckpointId(7), lambda: float(next(times)))
    story.record(CheckpointEvent.TRIGGERED)
    story.record(CheckpointEvent.INPUT_BLOCKED, "count", "from map: 12 B")
    assert story.checkpoint == 7
    assert story.records() == [
        CheckpointEventRecord(1.0, CheckpointEvent.TRIGGERED, None, ""),
        CheckpointEventRecord(2.0, CheckpointEvent.INPUT_BLOCKED, "count", "from map: 12 B"),
    ]


def test_an_event_log_loses_no_event_of_any_thread() -> None:
    story = CheckpointEventLog(CheckpointId(1))

    def tell(stage: str) -> None:
        for n in range(100):
            story.record(CheckpointEvent.BARRIER_SEEN, stage, str(n))

    threads = [threading.Thread(target=tell, args=(stage,)) for stage in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = story.records()
    for stage in "abc":
        assert [line.detail for line in told if line.stage == stage] == list(map(str, range(100)))
    assert [line.time for line in told] == sorted(line.time for line in told)


def test_returned_events_do_not_change_any_more() -> None:
    story = CheckpointEventLog(CheckpointId(1))
    before = story.records()
    story.record(CheckpointEvent.TRIGGERED)
    assert before == []


# -- checkpoints --------------------------------------------------------------------------------


def test_a_record_survives_the_driver(tmp_path: Path) -> None:
    whole = CheckpointStats(
        7, "savepoint", CheckpointStatus.FAILED, "a2", 1.0, 2.0, 3, 4,
        [OperatorStats("u", "map", [SubtaskStats(1.0)], [ChannelStats("s", "src", 0, 1, 2, 3)])],
        "/chk-7", "it took too long",
        [
            CheckpointEventRecord(1.0, CheckpointEvent.ABORTED, "map", "late"),
            CheckpointEventRecord(2.0, CheckpointEvent.SWITCHED),
        ],
        "unaligned", 5, 6,
    )  # fmt: skip
    History(LocalStorage(tmp_path)).write(whole)
    assert History(LocalStorage(tmp_path)).checkpoint(7) == whole
    assert (tmp_path / "history" / "000000000007.json").is_file()


def test_a_later_record_of_a_checkpoint_takes_the_place_of_an_earlier(history: History) -> None:
    history.write(record(1, CheckpointStatus.PENDING))
    history.write(record(1, CheckpointStatus.COMPLETED))
    assert history.checkpoints() == [record(1)]


def test_the_newest_records_are_kept(history: History) -> None:
    for n in (8, 9, 10, 11, 12):
        history.write(record(n))
    assert [r.id for r in history.checkpoints()] == [10, 11, 12]
    assert history.checkpoint(9) is None


def test_none_is_kept_if_none_is_to_be_kept(tmp_path: Path) -> None:
    history = History(LocalStorage(tmp_path), 0, 0, 0)
    history.write(record(1))
    history.add_recovery(recovery(1))
    history.add_exception(failure(1))
    assert (history.checkpoints(), history.recoveries(), history.exceptions()) == ([], [], [])


def test_a_record_of_an_older_version_is_read(history: History, tmp_path: Path) -> None:
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / "000000000001.json").write_text(
        '{"id":1,"kind":"periodic","status":"COMPLETED","attempt":"a1","triggered":1.0,'
        '"operators":[{"uid":"u","name":"map","stats":[{"start_delay_s":1.0}]}]}'
    )
    (found,) = history.checkpoints()
    assert (found.barriers, found.blocked_bytes, found.in_flight_bytes) == ("aligned", 0, 0)
    assert found.operators[0].channels == []


def test_a_damaged_record_is_left_out(history: History, tmp_path: Path) -> None:
    for n in (1, 2):
        history.write(record(n))
    (tmp_path / "history" / "000000000001.json").write_bytes(b'{"id":1')
    assert [r.id for r in history.checkpoints()] == [2]
    assert history.checkpoint(1) is None


# -- recoveries and exceptions ------------------------------------------------------------------


def test_recoveries_and_exceptions_survive_the_driver_and_the_newest_are_kept(
    history: History, tmp_path: Path
) -> None:
    assert history.recoveries() == []
    assert history.exceptions() == []
    for n in range(5):
        history.add_recovery(recovery(n))
        history.add_exception(failure(n))
    again = History(LocalStorage(tmp_path))
    assert again.recoveries() == [recovery(n) for n in (2, 3, 4)]
    assert again.exceptions() == [failure(n) for n in (2, 3, 4)]
    assert again.checkpoints() == []


def test_a_line_that_cannot_be_read_is_left_out(history: History, tmp_path: Path) -> None:
    history.add_recovery(recovery(1))
    with (tmp_path / "history" / "recoveries.jsonl").open("ab") as file:
        file.write(b'{"torn')
    history.add_recovery(recovery(2))
    assert history.recoveries() == [recovery(1), recovery(2)]


def test_threads_lose_no_exception(tmp_path: Path) -> None:
    history = History(LocalStorage(tmp_path))
    threads = [threading.Thread(target=history.add_exception, args=(failure(n),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(e.time for e in history.exceptions()) == [float(n) for n in range(8)]


# -- nothing affects the job --------------------------------------------------------------------


def test_a_text_that_is_not_unicode_is_stored_escaped(history: History) -> None:
    history.add_exception(ExceptionRecord(1.0, "a1", "caf\udce9", "\ud800", "\udfff"))
    (found,) = history.exceptions()
    assert (found.step, found.message, found.traceback) == ("caf\\udce9", "\\ud800", "\\udfff")


def test_a_long_text_is_cut_in_the_middle_and_says_so(tmp_path: Path) -> None:
    history = History(LocalStorage(tmp_path), longest_text=1000)
    long = "begin" + "x" * 1_000_000 + "end"
    history.add_exception(ExceptionRecord(1.0, "a1", None, long, long))
    history.add_recovery(Recovery("a2", 1, long, 0.1, 0.2, 0.3, 0.4, 0.5, 1.0))
    events = [CheckpointEventRecord(1.0, CheckpointEvent.ABORTED, None, long)]
    history.write(
        CheckpointStats(
            1, "periodic", CheckpointStatus.FAILED, "a1", 1.0, failure=long, events=events
        )
    )
    (exception,), (restored,) = history.exceptions(), history.recoveries()
    (checkpoint,) = history.checkpoints()
    for text in (
        exception.message,
        exception.traceback,
        restored.cause,
        checkpoint.failure,
        checkpoint.events[0].detail,
    ):
        assert text is not None
        assert len(text) < 1200
        assert text.startswith("beginx")
        assert text.endswith("xend")
        assert "999,008 characters are cut: penstock.history.max-exception-text is 1000" in text
    assert sum(path.stat().st_size for path in (tmp_path / "history").iterdir()) < 10_000


@pytest.mark.parametrize("longest", [1, 2, 3])
def test_a_text_may_be_cut_to_a_few_characters(tmp_path: Path, longest: int) -> None:
    history = History(LocalStorage(tmp_path), longest_text=longest)
    history.add_exception(ExceptionRecord(1.0, "a1", None, "#" * 100, ""))
    (found,) = history.exceptions()
    assert found.message.count("#") == longest


def test_credentials_are_not_stored(history: History) -> None:
    text = "cannot connect to postgresql://me:s3cret@db/shop with token=s3cret"
    history.add_exception(ExceptionRecord(1.0, "a1", None, text, text))
    history.add_recovery(Recovery("a2", 1, text, 0.1, 0.2, 0.3, 0.4, 0.5, 1.0))
    history.write(CheckpointStats(1, "periodic", CheckpointStatus.FAILED, "a1", 1.0, failure=text))
    stored = (history.exceptions(), history.recoveries(), history.checkpoints())
    assert "s3cret" not in repr(stored)
    assert "postgresql://me:***@db/shop" in repr(stored)


def test_what_cannot_be_written_is_logged_once_and_never_raised(
    history: History, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LocalStorage, "replace", fail)
    for n in range(5):
        history.write(record(n))
        history.add_exception(failure(n))
        history.add_recovery(recovery(n))
    assert caplog.messages == [
        "The history of the job lacks checkpoint 0: [Errno 28] No space left on device"
    ]


def test_every_byte_may_be_damaged(tmp_path: Path) -> None:
    history = History(LocalStorage(tmp_path))
    history.write(record(1))
    history.add_exception(failure(1))
    history.add_recovery(recovery(1))
    for path in sorted((tmp_path / "history").iterdir()):
        whole = path.read_bytes()
        for at in range(len(whole)):
            for bit in (0x01, 0x80):
                path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
                history.checkpoints(), history.exceptions(), history.recoveries()
        path.write_bytes(whole)
    assert history.unreadable
    assert history.checkpoints() == [record(1)]


def test_what_was_left_out_is_named(history: History, tmp_path: Path) -> None:
    history.write(record(1))
    history.add_exception(failure(1))
    (tmp_path / "history" / "000000000001.json").write_bytes(b'{"id":1,"kind":"\xff"}')
    with (tmp_path / "history" / "exceptions.jsonl").open("ab") as file:
        file.write(b"[" * 100_000)
    assert history.exceptions() == [failure(1)]
    assert history.checkpoints() == []
    assert history.unreadable == {
        "history/000000000001.json", "history/exceptions.jsonl, line 2",
    }  # fmt: skip


# -- what a recovery shows only later -----------------------------------------------------------


def test_the_newest_recovery_is_completed_by_its_own_attempt_only(history: History) -> None:
    history.add_recovery(recovery(1))
    history.add_recovery(recovery(2))
    completed = msgspec.structs.replace(recovery(2), caught_up_s=7.0, catch_up_records=70)
    history.replace_recovery(completed)
    assert history.recoveries() == [recovery(1), completed]
    # A driver that was replaced must not touch what its successor wrote.
    history.replace_recovery(msgspec.structs.replace(recovery(1), caught_up_s=1.0))
    assert history.recoveries() == [recovery(1), completed]


def test_a_recovery_that_was_dropped_meanwhile_is_not_added_again(tmp_path: Path) -> None:
    history = History(LocalStorage(tmp_path), recoveries_kept=0)
    history.add_recovery(recovery(1))
    history.replace_recovery(recovery(1))
    assert history.recoveries() == []


def test_records_of_versions_without_load_and_catch_up_are_read(tmp_path: Path) -> None:
    directory = tmp_path / "history"
    directory.mkdir()
    (directory / "000000000007.json").write_text(
        '{"id": 7, "kind": "periodic", "status": "COMPLETED", "attempt": "a1", "triggered": 1.0}'
    )
    (directory / "recoveries.jsonl").write_text(
        '{"attempt": "a2", "checkpoint": 7, "cause": "the driver died", "detect_s": 1.0, '
        '"redeploy_s": 2.0, "load_state_s": 3.0, "reset_sources_s": 0.0, "reset_sinks_s": 0.0, '
        '"time": 9.0}\n'
    )
    history = History(LocalStorage(tmp_path))
    (old,) = history.checkpoints()
    assert (old.load_before, old.load_during) == (None, None)
    (recovered,) = history.recoveries()
    assert (recovered.loaded_bytes, recovered.snapshot_age_s) == (0, None)
    assert (recovered.caught_up_s, recovered.catch_up_records) == (None, 0)
    assert history.unreadable == set()
