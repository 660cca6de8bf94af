from __future__ import annotations

import threading
import time

from penstock.job.signals import JobSignals


def test_a_change_between_reading_the_version_and_waiting_is_not_missed() -> None:
    board = JobSignals()
    seen = board.version
    board.notify()
    board.wait(seen, None)


def test_a_change_wakes_waiting_threads() -> None:
    board = JobSignals()
    thread = threading.Thread(target=board.wait, args=(board.version, None))
    thread.start()
    board.notify()
    thread.join(5)
    assert not thread.is_alive()


def test_a_wait_ends_after_its_timeout() -> None:
    board = JobSignals()
    began = time.monotonic()
    board.wait(board.version, 0.02)
    assert time.monotonic() - began < 2


def test_the_first_failure_counts_and_stops_all_loops() -> None:
    board = JobSignals()
    first, second = ValueError("first"), ValueError("second")
    assert board.fail(first)
    assert not board.fail(second)
    assert (board.stopping, board.failure) == (True, first)


def test_a_stop_is_no_failure() -> None:
    board = JobSignals()
    seen = board.version
    board.stop()
    board.wait(seen, None)
    assert (board.stopping, board.failure) == (True, None)
