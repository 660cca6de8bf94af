"""Sources that cannot be read twice: a socket, and a broker that wants acknowledgements."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from penstock.common import Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import SocketSource
from penstock.datastream.connectors.acknowledging import (
    AcknowledgingSource,
    Delivery,
    Receiver,
    ReceiverContext,
)
from tests.golden.programs.running import Run

LINES, LINES_CUT = 300, 200
MESSAGES, MESSAGES_CUT = 300, 200


# -- a socket -----------------------------------------------------------------------------------


@contextmanager
def serving(lines: Iterable[str], *, ends: bool) -> Iterator[int]:
    """Serve lines to whoever connects, on a free port; then hang up, or stay."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stays = threading.Event()

        def serve() -> None:
            with suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    for line in lines:
                        connection.sendall(f"{line}\n".encode())
                    if not ends:
                        stays.wait()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        stays.set()


def socket_job(run: Run, port: int) -> StreamExecutionEnvironment:
    """Copy the lines of a server into files."""
    env = run.environment("socket")
    lines = env.from_source(
        SocketSource("127.0.0.1", port), WatermarkStrategy.no_watermarks(), "lines"
    )
    lines.map(lambda line: f"got {line}", Types.STRING()).sink_to(run.files("lines"))
    return env


def run_socket_job(run: Run) -> None:
    """Run it with a server that has the first lines only, or the others only.

    A server does not send again what it has sent: the first lines are in the ingestion log.
    """
    numbers = range(LINES_CUT, LINES) if run.more else range(LINES_CUT)
    with serving((f"line {n}" for n in numbers), ends=run.more) as port:
        socket_job(run, port).execute("socket")


# -- a broker -----------------------------------------------------------------------------------


class FileBroker:
    """A broker whose memory is a directory: which messages were acknowledged."""

    def __init__(self, directory: Path, messages: int) -> None:
        self._directory = directory
        self.messages = messages
        directory.mkdir(parents=True, exist_ok=True)

    def acknowledge(self, names: Sequence[str]) -> None:
        """Forget messages for good."""
        with (self._directory / "acknowledged").open("a") as file:
            file.write("".join(f"{name}\n" for name in names))

    def acknowledged(self) -> set[str]:
        """Tell which messages nobody gets any more."""
        path = self._directory / "acknowledged"
        return set(path.read_text().split()) if path.exists() else set()


class _Receiver(Receiver):
    def __init__(self, broker: FileBroker, ends: bool, notes: dict[str, str]) -> None:
        self._broker = broker
        self._ends = ends
        self._notes = notes
        gone = broker.acknowledged()
        self._left = [n for n in map(_name, range(broker.messages)) if n not in gone]

    def receive(self, limit: int, timeout: float) -> list[Delivery]:
        if not self._left:
            time.sleep(min(timeout, 0.01))
        taken, self._left = self._left[:30], self._left[30:]
        return [Delivery(_id(name), name.encode(), name) for name in taken]

    def acknowledge(self, handles: Sequence[Any]) -> bool:
        self._broker.acknowledge(handles)
        return True

    def has_ended(self, waiting: int) -> bool:
        return self._ends and not self._left

    def notes(self) -> dict[str, str]:
        return {**self._notes, "consumer": "golden"}


def _name(number: int) -> str:
    return f"message-{number}"


def _id(name: str) -> str | int:
    # Half of them have texts, the others numbers, in an order of their own.
    number = int(name.partition("-")[2])
    return name if number % 2 else number * 2


class BrokerSource(AcknowledgingSource):
    """The messages of a `FileBroker`."""

    redelivery_horizon = 10**9

    def __init__(self, directory: Path, messages: int, *, ends: bool) -> None:
        self._given = directory, messages, ends

    def receiver(self, context: ReceiverContext) -> Receiver:
        directory, messages, ends = self._given
        if ends and context.notes != {"consumer": "golden"}:
            message = f"the notes of the receiver before are {context.notes}"
            raise AssertionError(message)
        return _Receiver(FileBroker(directory, messages), ends, dict(context.notes))

    def deserialize(self, payload: bytes) -> str:
        return payload.decode()


def broker_job(run: Run) -> list[str]:
    """Collect all messages, and write down each when it is there."""
    env = run.environment("broker")
    messages = MESSAGES if run.more else MESSAGES_CUT
    source = BrokerSource(run.directory / "broker", messages, ends=run.more)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "messages", Types.STRING())
    collected = []
    with stream.execute_and_collect("broker") as values:
        for value in values:
            collected.append(value)
            with (run.directory / "collected").open("a") as file:
                file.write(f"{value}\n")
    return collected


def collected(run: Run) -> list[str]:
    """Return what all runs have collected."""
    return (run.directory / "collected").read_text().split()
