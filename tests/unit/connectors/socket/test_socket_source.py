import itertools
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.connectors.contracts.source import EnumeratorContext, SourceEnumerator
from penstock.connectors.socket.source import SocketSource
from penstock.errors import CorruptIngestionLogError, SocketConnectionError


class Server:
    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.source = SocketSource(*self._listening.getsockname())

    def accept(self) -> socket.socket:
        connection, _ = self._listening.accept()
        return connection

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


class Running:
    """A started enumerator, driven as the stage loop does."""

    def __init__(self, source: SocketSource, work_dir: Path, positions: dict[str, int]) -> None:
        self.woken = threading.Event()
        self.source = source
        context = EnumeratorContext(1, work_dir, time.monotonic, self.woken.set)
        self.enumerator: SourceEnumerator = source.enumerator(context)
        try:
            self.enumerator.start(positions)
        except BaseException:
            self.enumerator.close()
            raise

    def lines(self, count: int) -> list[str]:
        lines: list[str] = []
        while len(lines) < count and not self.enumerator.finished():
            self.woken.clear()
            ranges = itertools.chain.from_iterable(self.enumerator.plan(count - len(lines)))
            for chunk in itertools.chain.from_iterable(map(self.source.read_lists, ranges)):
                lines += chunk
            if self.enumerator.next_poll() is None and not self.enumerator.finished():
                assert len(lines) >= count or self.woken.wait(10)
        return lines


def test_lines_are_read_until_the_server_closes_the_connection(
    server: Server, tmp_path: Path
) -> None:
    running = Running(server.source, tmp_path, {})
    with server.accept() as connection:
        for piece in (b"on", b"e\r", b"\ntwo\n\nth", "réé".encode(), b"\nlast"):
            connection.sendall(piece)
            time.sleep(0.005)
    assert running.lines(100) == ["one", "two", "", "thréé", "last"]
    assert running.enumerator.finished()
    running.enumerator.close()


def test_a_restored_source_replays_and_continues_live(server: Server, tmp_path: Path) -> None:
    running = Running(server.source, tmp_path, {})
    with server.accept() as connection:
        connection.sendall(b"1\n2\n3\n")
        assert running.lines(1) == ["1"]
        positions = running.enumerator.positions()
        assert running.lines(2) == ["2", "3"]
        running.enumerator.close()
    running = Running(server.source, tmp_path, positions)
    with server.accept() as connection:
        connection.sendall(b"4\n")
    assert running.lines(100) == ["2", "3", "4"]
    running.enumerator.close()


def test_positions_outlive_a_move_of_the_log(server: Server, tmp_path: Path) -> None:
    running = Running(server.source, tmp_path / "old", {})
    with server.accept() as connection:
        connection.sendall(b"1\n2\n3\n")
        assert running.lines(1) == ["1"]
        at_checkpoint = running.enumerator.positions()
        running.enumerator.close()
    (tmp_path / "old").rename(tmp_path / "new")
    running = Running(server.source, tmp_path / "new", at_checkpoint)
    with server.accept():
        assert running.lines(1) == ["2"]
        # What was written down later takes the place of the checkpoint's, whatever the path.
        positions = {**at_checkpoint, **running.enumerator.positions()}
        running.enumerator.close()
    running = Running(server.source, tmp_path / "new", positions)
    with server.accept():
        assert running.lines(1) == ["3"]
    running.enumerator.close()


def test_an_ended_log_is_replayed_without_the_server(server: Server, tmp_path: Path) -> None:
    running = Running(server.source, tmp_path, {})
    with server.accept() as connection:
        connection.sendall(b"1\n2\n")
    assert running.lines(100) == ["1", "2"]
    running.enumerator.close()
    server.close()
    running = Running(server.source, tmp_path, {})
    assert running.lines(100) == ["1", "2"]
    running.enumerator.close()


def test_a_server_that_is_not_there_is_named(server: Server, tmp_path: Path) -> None:
    server.close()
    with pytest.raises(SocketConnectionError, match=r"no connection to 127.0.0.1:\d+: .*refused"):
        Running(server.source, tmp_path, {})


def test_a_lost_connection_is_raised_after_the_last_line(server: Server, tmp_path: Path) -> None:
    running = Running(server.source, tmp_path, {})
    connection = server.accept()
    connection.sendall(b"1\n")
    assert running.lines(1) == ["1"]
    running.woken.clear()
    linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    connection.close()
    assert running.woken.wait(10)
    with pytest.raises(SocketConnectionError, match="reset"):
        running.enumerator.plan(10)
    assert not running.enumerator.finished()
    running.enumerator.close()


def test_positions_outside_the_log_are_an_error(server: Server, tmp_path: Path) -> None:
    with pytest.raises(CorruptIngestionLogError, match="it has records 0 to 0"):
        Running(server.source, tmp_path, {"log": 7})


def test_released_positions_trim_the_log(server: Server, tmp_path: Path) -> None:
    running = Running(server.source, tmp_path, {})
    with server.accept() as connection:
        connection.sendall(b"1\n2\n")
        assert running.lines(2) == ["1", "2"]
        running.enumerator.release(running.enumerator.positions())
        running.enumerator.release({})
    running.enumerator.close()
