"""Source of the lines that a server sends over a socket."""
# ruff: noqa: D102 - the contract documents the methods of a source

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from penstock.common.typeinfo import TypeInformation, Types
from penstock.connectors.contracts.input_settings import DEFAULT_INPUT_SETTINGS, InputSettings
from penstock.connectors.contracts.source import (
    Boundedness,
    Chunk,
    EnumeratorContext,
    ReadPlan,
    Source,
    SourceEnumerator,
    SplitRange,
)
from penstock.connectors.indexed_sources import divide_range
from penstock.connectors.socket.generations import Owner
from penstock.connectors.socket.ingestion_log import IngestionLog, read_log
from penstock.errors import CorruptIngestionLogError, InvalidJobError, SocketConnectionError

_log = logging.getLogger(__name__)

_CONNECT_SECONDS = 10.0
_RECEIVE_BYTES = 1 << 20
# More makes the server wait, as a slow Flink job does.
_MAX_BACKLOG = 4_000_000
_ONLY_SPLIT = "log"


class SocketSource(Source):
    """The lines that a server sends until it closes the connection.

    A socket cannot be read twice, so the driver writes every line to an ingestion log before any
    micro-batch reads it. What the server sends while no driver is connected, or what is not yet in
    the log at a crash, is lost.
    """

    keeps_files = "an ingestion log"
    reads_work_dir = True

    def __init__(self, host: str, port: int) -> None:
        if not isinstance(port, int) or not 0 < port < 65536:
            message = f"a port is a whole number from 1 to 65535; got {port!r}"
            raise InvalidJobError(message)
        self._host = host
        self._port = port
        self._settings = DEFAULT_INPUT_SETTINGS

    def with_settings(self, settings: InputSettings) -> SocketSource:
        configured = SocketSource(self._host, self._port)
        configured._settings = settings
        return configured

    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def type_info(self) -> TypeInformation | None:
        return Types.STRING()

    def default_parallelism(self) -> int | None:
        return 1

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        return _Enumerator((self._host, self._port), context, self._settings)

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        return read_log(Path(split_range.split), split_range.start, split_range.end)


class _Enumerator(SourceEnumerator):
    """Plans what is in the log; positions count records.

    Positions are not named after the log's directory, which moves with the job's. Ranges, which
    only one micro-batch uses, are.
    """

    def __init__(
        self, address: tuple[str, int], context: EnumeratorContext, settings: InputSettings
    ) -> None:
        self._address = address
        self._context = context
        self._settings = settings
        self._directory = context.work_dir / "ingestion-log"
        owner = Owner(context.job, context.job_instance, context.attempt)
        self._log = IngestionLog(self._directory, owner)
        self._next = 0
        self._receiver: _Receiver | None = None

    def start(self, positions: Mapping[str, int]) -> None:
        self._next = self._first_record(positions)
        if not self._log.ended:
            self._receiver = _Receiver(self._address, self._log, self._context, self._settings)
            self._receiver.planned = self._next
            self._receiver.start()

    def plan(self, max_records: int) -> ReadPlan:
        end = min(self._log.end, self._next + max_records)
        if end > self._next:
            start, self._next = self._next, end
            if self._receiver is not None:
                self._receiver.planned = end
            return divide_range(str(self._log.path), start, end, self._context.parallelism)
        if self._receiver is not None and self._receiver.error is not None:
            raise self._receiver.error
        return []

    def positions(self) -> dict[str, int]:
        return {_ONLY_SPLIT: self._next}

    def finished(self) -> bool:
        # In this order: no record is appended after the log has ended.
        return self._log.ended and self._next >= self._log.end

    def next_poll(self) -> float | None:
        return 0.0 if self._next < self._log.end else None

    def pending_records(self) -> int:
        return self._log.end - self._next

    def release(self, positions: Mapping[str, int]) -> None:
        self._log.trim(min(positions.values(), default=0))

    def close(self) -> None:
        if self._receiver is not None:
            self._receiver.stop()
        self._log.close()

    def _first_record(self, positions: Mapping[str, int]) -> int:
        begin, end = self._log.begin, self._log.end
        if not positions:
            if begin:
                _log.warning(
                    "Records below %d of ingestion log %s were trimmed.", begin, self._directory
                )
            return begin
        position = positions[_ONLY_SPLIT]
        if not begin <= position <= end:
            reason = f"it has records {begin} to {end}; the job resumes at {position}"
            raise CorruptIngestionLogError(str(self._directory), 0, reason)
        return position


class _Receiver:
    """The thread that moves lines from the socket into the log.

    ``error`` and ``planned`` are each written by one thread and read by the other.
    """

    def __init__(
        self,
        address: tuple[str, int],
        log: IngestionLog,
        context: EnumeratorContext,
        settings: InputSettings,
    ) -> None:
        self.error: Exception | None = None
        self._settings = settings
        self.planned = 0
        self._log = log
        self._wake = context.wake
        self._check_owner = context.check_owner
        self._stopping = threading.Event()
        self._address = address
        try:
            self._socket = socket.create_connection(address, _CONNECT_SECONDS)
        except OSError as error:
            raise SocketConnectionError(*address, str(error)) from None
        self._socket.settimeout(None)
        self._thread = threading.Thread(target=self._run, name="socket-source", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        with contextlib.suppress(OSError):  # the server may have closed it already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        try:
            self._receive()
        except OSError as error:
            self.error = SocketConnectionError(*self._address, str(error))
        except Exception as error:
            self.error = error
        finally:
            self._wake()

    def _receive(self) -> None:
        # Pieces of a line whose end has not arrived; joining them each time would be quadratic.
        rest: list[bytes] = []
        rest_bytes = 0
        while data := self._socket.recv(_RECEIVE_BYTES):
            lines, separator, rest_of_data = data.rpartition(b"\n")
            if not separator:
                rest.append(data)
                rest_bytes += len(data)
                self._check_size(rest_bytes)
                continue
            block = b"".join([*rest, lines, b"\n"])
            received = block.replace(b"\r\n", b"\n")[:-1].split(b"\n")
            # Nearly always true: then no line has to be measured.
            if len(block) > self._settings.max_record_bytes:
                self._check_size(max(map(len, received)))
            self._check_owner()
            # While one block is synced, the next one arrives in the socket's buffer.
            self._log.append(received)
            rest, rest_bytes = [rest_of_data], len(rest_of_data)
            self._wake()
            self._wait_while_full()
        if not self._stopping.is_set():
            self._check_owner()
            last = b"".join(rest)
            self._log.append([last] if last else [])
            self._log.append_end()

    def _check_size(self, size: int) -> None:
        if size > self._settings.max_record_bytes:
            host, port = self._address
            what = f"a line from {host}:{port}"
            raise self._settings.record_too_large(what)

    def _wait_while_full(self) -> None:
        while self._log.end - self.planned > _MAX_BACKLOG:
            if self._stopping.wait(0.05):
                return
