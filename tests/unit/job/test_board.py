from __future__ import annotations

import threading
import time

from penstock.job.board import Board


def test_a_change_between_looking_and_waiting_is_not_missed() -> None:
    board = Board()
    seen = board.version
    board.change()
    board.wait(seen, None)


def test_a_change_wakes_who_waits() -> None:
    board = Board()
    thread = threading.Thread(target=board.wait, args=(board.version, None))
    thread.start()
    board.change()
    thread.join(5)
    assert not thread.is_alive()


def test_a_wait_ends_with_its_time() -> None:
    board = Board()
    began = time.monotonic()
    board.wait(board.version, 0.02)
    assert time.monotonic() - began < 2


def test_the_first_failure_counts_and_stops_everyone() -> None:
    board = Board()
    first, second = ValueError("first"), ValueError("second")
    assert board.fail(first)
    assert not board.fail(second)
    assert (board.stopping, board.failure) == (True, first)


def test_a_stop_is_no_failure() -> None:
    board = Board()
    seen = board.version
    board.stop()
    board.wait(seen, None)
    assert (board.stopping, board.failure) == (True, None)
