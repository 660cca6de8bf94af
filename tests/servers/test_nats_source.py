"""A real JetStream stream, read by jobs that are killed from a server that is killed.

What was published and what is unacknowledged is queried with plain nats-py, the output is read
from plain files.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import nats as nats_py
import pytest
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, RetentionPolicy
from nats.js.errors import NotFoundError

from penstock.common.serialization import ByteArraySchema
from penstock.common.time import Duration
from penstock.connectors.contracts.source import EnumeratorContext, SourceEnumerator
from penstock.datastream.connectors.nats import NatsSource, NatsSourceBuilder
from penstock.errors import (
    AcknowledgedRecordsError,
    DifferentStreamError,
    MissingStreamError,
    NatsConnectionError,
    UnsuitableConsumerError,
)
from penstock.testing.servers.free_port import free_port
from penstock.testing.servers.nats_server import NatsServer
from tests.servers.nats_program import KILL_AT_ACK, Spec, key_of

pytestmark = pytest.mark.nats

ROOT = Path(__file__).parents[2]
R = TypeVar("R")


def on(server: NatsServer, work: Callable[[JetStreamContext], Awaitable[R]]) -> R:
    """Do something with a plain client."""

    async def connected() -> R:
        client = await nats_py.connect(server.url)
        try:
            return await work(client.jetstream())
        finally:
            await client.close()

    return asyncio.run(connected())


def publish(server: NatsServer, stream: str, payloads: list[bytes], subject: str = "all") -> None:
    async def work(jetstream: JetStreamContext) -> None:
        await jetstream.add_stream(name=stream, subjects=[f"{stream}.>"])
        before = (await jetstream.stream_info(stream)).state.messages
        for payload in payloads:
            await jetstream._nc.publish(f"{stream}.{subject}", payload)
        while (await jetstream.stream_info(stream)).state.messages < before + len(payloads):
            await asyncio.sleep(0.01)

    on(server, work)


def consumer_of(server: NatsServer, stream: str, durable: str) -> ConsumerInfo:
    async def query(jetstream: JetStreamContext) -> ConsumerInfo:
        info: ConsumerInfo = await jetstream.consumer_info(stream, durable)
        return info

    return on(server, query)


class Started:
    """The program in a process of its own."""

    def __init__(self, spec: Spec, kill_at_ack: str | None = None) -> None:
        directory = Path(spec.directory)
        number = len(list(directory.glob("start-*.json")))
        spelled = directory / f"start-{number}.json"
        spelled.write_bytes(msgspec.json.encode(spec))
        self._log = directory / f"start-{number}.log"
        extra = {} if kill_at_ack is None else {KILL_AT_ACK: kill_at_ack}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.servers.nats_program", str(spelled)],
                cwd=ROOT,
                env={**os.environ, **extra},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait(self) -> int:
        try:
            return self._process.wait(120)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(self.words()) from None

    def wait_for_lines(self, output: Path, count: int) -> None:
        end = time.monotonic() + 60
        while len(lines_in(output)) < count:
            assert self._process.poll() is None, self.words()
            assert time.monotonic() < end, self.words()
            time.sleep(0.02)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def words(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def lines_in(output: Path) -> list[str]:
    files = [p for p in output.rglob("*") if p.is_file() and not _is_hidden(p, output)]
    return [line for path in files for line in path.read_text().splitlines()]


def _is_hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def assert_each_once(output: Path, count: int) -> None:
    rows = [tuple(map(int, line.split(","))) for line in lines_in(output)]
    numbers = Counter(number for _, _, number in rows)
    lost = count - len(numbers)
    doubled = [number for number, times in numbers.items() if times > 1]
    assert (lost, doubled) == (0, [])
    for key in range(7):
        counts = sorted(count for of, count, _ in rows if of == key)
        assert counts == list(range(1, len(counts) + 1)), "state counted each one once"
    assert all(key == key_of(str(number)) for key, _, number in rows)


def assert_all_acknowledged(server: NatsServer, stream: str) -> None:
    """Wait until the server has processed the acknowledgements."""
    end = time.monotonic() + 60
    while (consumer := consumer_of(server, stream, "counts")).num_ack_pending:
        assert time.monotonic() < end, consumer
        time.sleep(0.1)
    assert consumer.num_pending == 0


def test_a_job_killed_around_acknowledgements_counts_each_message_once(
    nats: NatsServer, tmp_path: Path
) -> None:
    publish(nats, "KILLED", [b"%d" % n for n in range(20_000)])
    spec = Spec(str(tmp_path), nats.url, "KILLED")
    for kill_at_ack in ("before:1", "half:3", "after:3"):
        started = Started(spec, kill_at_ack)
        assert started.wait() == -signal.SIGKILL, started.words()
        assert consumer_of(nats, "KILLED", "counts").ack_floor.stream_seq < 20_000  # type: ignore[union-attr]
    last = Started(msgspec.structs.replace(spec, parallelism=3))
    assert last.wait() == 0, last.words()
    assert_each_once(spec.output, 20_000)
    assert_all_acknowledged(nats, "KILLED")


def test_a_killed_server_loses_and_duplicates_no_message(nats: NatsServer, tmp_path: Path) -> None:
    publish(nats, "OUTAGE", [b"%d" % n for n in range(20_000)])
    spec = Spec(str(tmp_path), nats.url, "OUTAGE")
    started = Started(spec)
    started.wait_for_lines(spec.output, 2_000)
    nats.kill()
    time.sleep(0.3)
    nats.start()
    started.wait_for_lines(spec.output, 6_000)
    started.kill()
    second = Started(spec)
    second.wait_for_lines(spec.output, 8_000)
    nats.kill()
    nats.start()
    assert second.wait() == 0, second.words()
    assert_each_once(spec.output, 20_000)
    assert_all_acknowledged(nats, "OUTAGE")


# -- the source by itself ---------------------------------------------------------------------


class Reader:
    """Reads a source as a job would, in this process."""

    def __init__(self, source: NatsSource, work_dir: Path, attempt: str = "a1") -> None:
        self._source = source
        context = EnumeratorContext(
            2, work_dir, time.time, lambda: None, "job", attempt, checkpointed=True
        )
        self.enumerator: SourceEnumerator = source.enumerator(context)
        self.records: list[Any] = []
        self._is_open = True

    def read(self, *, until: Callable[[], bool] | None = None) -> list[Any]:
        """Read until something is true, or the end."""
        until = until or self.enumerator.finished
        end = time.monotonic() + 60
        while not until():
            assert time.monotonic() < end, f"{len(self.records)} records came"
            for part in (r for ranges in self.enumerator.plan(10_000) for r in ranges):
                for chunk in self._source.read_lists(part):
                    self.records += chunk
            time.sleep(0.01)
        return self.records

    def checkpoint(self) -> bytes:
        """Take a checkpoint that completes."""
        memory = self.enumerator.snapshot_state()
        self.enumerator.notify_checkpoint_complete(self.enumerator.positions())
        return memory

    def close(self) -> None:
        """End the attempt."""
        if self._is_open:
            self._is_open = False
            self.enumerator.close()


@pytest.fixture
def readers(tmp_path: Path) -> Iterator[Callable[..., Reader]]:
    made: list[Reader] = []

    def start(builder: NatsSourceBuilder, memory: bytes | None = None) -> Reader:
        reader = Reader(builder.build(), tmp_path, f"a{len(made) + 1}")
        if memory is not None:
            reader.enumerator.restore_state(memory)
        reader.enumerator.start({})
        made.append(reader)
        return reader

    yield start
    for reader in made:
        reader.close()


def builder(server: NatsServer, stream: str) -> NatsSourceBuilder:
    return (
        NatsSource.builder()
        .set_servers(server.url)
        .set_stream(stream)
        .set_durable("job")
        .set_ack_wait(Duration.of_millis(500))
        .set_bounded()
    )


def test_a_filtered_stream_only_has_its_subjects(
    nats: NatsServer, readers: Callable[..., Reader]
) -> None:
    publish(nats, "FILTERED", [b"%d" % n for n in range(50)], "new")
    publish(nats, "FILTERED", [b"no"] * 10, "old")
    publish(nats, "FILTERED", [b"\xff\x00"], "new")
    publish(nats, "FILTERED", [b"no"], "old")
    some = builder(nats, "FILTERED").set_subject("FILTERED.new")
    reader = readers(some.set_deserializer(ByteArraySchema()))
    assert sorted(reader.read()) == sorted([*(b"%d" % n for n in range(50)), b"\xff\x00"])
    reader.checkpoint()
    reader.close()
    assert consumer_of(nats, "FILTERED", "job").ack_floor.stream_seq >= 61  # type: ignore[union-attr]


def test_a_bounded_source_ends_after_the_last_message_of_its_first_start(
    nats: NatsServer, readers: Callable[..., Reader]
) -> None:
    publish(nats, "BOUNDED", [b"%d" % n for n in range(30)])
    first = readers(builder(nats, "BOUNDED"))
    memory = first.enumerator.snapshot_state()
    publish(nats, "BOUNDED", [b"later"] * 5)
    assert len(first.read()) == 30
    first.close()
    second = readers(builder(nats, "BOUNDED"), memory)
    assert sorted(map(int, second.read())) == list(range(30))
    second.checkpoint()
    second.close()
    assert consumer_of(nats, "BOUNDED", "job").ack_floor.stream_seq == 30  # type: ignore[union-attr]


def test_an_unbounded_source_receives_new_messages(
    nats: NatsServer, readers: Callable[..., Reader]
) -> None:
    publish(nats, "ENDLESS", [b"first"])
    endless = NatsSource.builder().set_servers(nats.url).set_stream("ENDLESS").set_durable("job")
    reader = readers(endless)
    reader.read(until=lambda: len(reader.records) == 1)
    publish(nats, "ENDLESS", [b"second"])
    assert reader.read(until=lambda: len(reader.records) == 2) == ["first", "second"]
    assert not reader.enumerator.finished()


def test_messages_in_flight_for_longer_than_the_ack_wait_are_not_redelivered(
    nats: NatsServer, readers: Callable[..., Reader]
) -> None:
    publish(nats, "SLOW", [b"%d" % n for n in range(20)])
    reader = readers(builder(nats, "SLOW").set_ack_wait(Duration.of_seconds(3)))
    reader.read()
    time.sleep(4)
    assert consumer_of(nats, "SLOW", "job").num_redelivered == 0
    reader.checkpoint()


def test_a_message_that_looks_like_a_server_response_is_a_message(
    nats: NatsServer, readers: Callable[..., Reader]
) -> None:
    publish(nats, "LOOKS", [])
    headers = {"Status": "404", "Description": "Consumer Deleted"}
    on(nats, lambda jetstream: jetstream.publish("LOOKS.x", b"", headers=headers))
    assert readers(builder(nats, "LOOKS")).read() == [""]


def test_messages_too_large_for_one_request_are_received_in_several(
    nats: NatsServer, readers: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.connectors.nats.receiver._MAX_BYTES", 10_000)
    publish(nats, "LARGE", [b"%d" % n + b" " * 3_000 for n in range(50)])
    reader = readers(builder(nats, "LARGE").set_ack_wait(Duration.of_minutes(5)))
    assert sorted(map(int, reader.read())) == list(range(50))
    assert consumer_of(nats, "LARGE", "job").num_redelivered == 0
    reader.checkpoint()


def test_what_a_killed_attempt_had_in_flight_is_redelivered_before_the_ack_wait(
    nats: NatsServer, readers: Callable[..., Reader]
) -> None:
    publish(nats, "FLIGHT", [b"%d" % n for n in range(500)])
    patient = builder(nats, "FLIGHT").set_ack_wait(Duration.of_minutes(5))
    first = readers(patient)
    first.read()
    # As if killed: nothing is rejected.
    first.enumerator._loop._receiver.reject = lambda handles: None  # type: ignore[attr-defined]
    first.close()
    second = readers(patient)
    assert sorted(map(int, second.read())) == list(range(500))
    assert consumer_of(nats, "FLIGHT", "job").config.ack_wait == 300
    second.checkpoint()


def test_a_deleted_consumer_is_recreated_and_duplicates_nothing(
    nats: NatsServer, readers: Callable[..., Reader]
) -> None:
    publish(nats, "DELETED", [b"%d" % n for n in range(20)])
    first = readers(builder(nats, "DELETED"))
    first.read()
    memory = first.checkpoint()
    first.close()
    on(nats, lambda jetstream: jetstream.delete_consumer("DELETED", "job"))
    publish(nats, "DELETED", [b"new"])
    endless = NatsSource.builder().set_servers(nats.url).set_stream("DELETED").set_durable("job")
    second = readers(endless, memory)
    assert second.read(until=lambda: bool(second.records)) == ["new"]


def test_a_recreated_stream_is_rejected(nats: NatsServer, readers: Callable[..., Reader]) -> None:
    publish(nats, "ANEW", [b"old"])
    reader = readers(builder(nats, "ANEW"))
    reader.read()
    memory = reader.checkpoint()
    reader.close()
    on(nats, lambda jetstream: jetstream.delete_stream("ANEW"))
    publish(nats, "ANEW", [b"new"])
    with pytest.raises(DifferentStreamError, match="created at"):
        readers(builder(nats, "ANEW"), memory)


@pytest.mark.parametrize("subject", [None, "OTHERS.all"], ids=["all", "filtered"])
@pytest.mark.parametrize("retention", list(RetentionPolicy), ids=str)
def test_a_snapshot_from_before_what_another_job_acknowledged_is_rejected(
    nats: NatsServer,
    tmp_path: Path,
    retention: RetentionPolicy,
    subject: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    on(nats, partial(remake_stream, name="OTHERS", retention=retention))
    described = NatsSource.builder().set_servers(nats.url).set_stream("OTHERS").set_durable("job")
    source = (described if subject is None else described.set_subject(subject)).build()
    one = Reader(source, tmp_path / "one")
    one.enumerator.start({})
    on(nats, partial(publish_both, name="OTHERS", count=20))
    wait_until(lambda: one.enumerator.plan(5) != [])
    savepoint = one.enumerator.snapshot_state()
    one.read(until=lambda: len(one.records) >= (15 if subject else 16))
    newest = one.checkpoint()
    one.close()
    other = Reader(source, tmp_path / "other")
    other.enumerator.restore_state(newest)
    other.enumerator.start({})
    other.close()
    behind = Reader(source, tmp_path / "third")
    behind.enumerator.restore_state(savepoint)
    if retention == RetentionPolicy.LIMITS or subject is None:
        with pytest.raises(AcknowledgedRecordsError, match="the broker's message 22"):
            behind.enumerator.start({})
    else:
        behind.enumerator.start({})
        behind.close()
        assert "if another job acknowledged such messages" in caplog.text


def wait_until(happens: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


async def publish_both(jetstream: JetStreamContext, *, name: str, count: int) -> None:
    await jetstream.publish(f"{name}.none", b"none of it")
    for number in range(count):
        await jetstream.publish(f"{name}.all", b"%d" % number)


async def remake_stream(
    jetstream: JetStreamContext, *, name: str, retention: RetentionPolicy
) -> None:
    with contextlib.suppress(NotFoundError):
        await jetstream.delete_stream(name)
    await jetstream.add_stream(name=name, subjects=[f"{name}.>"], retention=retention)


def test_deleted_messages_do_not_reject_a_snapshot(nats: NatsServer, tmp_path: Path) -> None:
    publish(nats, "HOLES", [b"%d" % n for n in range(10)])
    for number in (1, 4, 10):
        on(nats, partial(JetStreamContext.delete_msg, stream_name="HOLES", seq=number))
    one = Reader(builder(nats, "HOLES").build(), tmp_path / "one")
    one.enumerator.start({})
    one.read()
    memory = one.checkpoint()
    one.close()
    other = Reader(builder(nats, "HOLES").build(), tmp_path / "other")
    other.enumerator.restore_state(memory)
    other.enumerator.start({})
    assert other.read() == []
    other.close()


def test_a_missing_stream_is_reported(nats: NatsServer, readers: Callable[..., Reader]) -> None:
    with pytest.raises(MissingStreamError, match="'NOWHERE'"):
        readers(builder(nats, "NOWHERE"))


def test_an_unreachable_server_is_reported(
    readers: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.connectors.nats.connection._CONNECT_SECONDS", 0.5)
    address = f"nats://me:secret@127.0.0.1:{free_port()}"
    somewhere = NatsSource.builder().set_servers(address).set_stream("S").set_durable("d")
    with pytest.raises(NatsConnectionError, match="no connection to NATS") as refused:
        readers(somewhere)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (ConsumerConfig(max_deliver=5), "after 5 deliveries"),
        (ConsumerConfig(ack_policy=AckPolicy.ALL), "'all', not 'explicit'"),
        (ConsumerConfig(deliver_subject="push"), "push consumer .to 'push'"),
        (ConsumerConfig(filter_subject="UNFIT.x"), "it filters UNFIT.x, not >"),
    ],
)
def test_a_consumer_that_would_lose_messages_is_rejected(
    nats: NatsServer, readers: Callable[..., Reader], config: ConsumerConfig, reason: str
) -> None:
    publish(nats, "UNFIT", [])
    on(nats, lambda jetstream: jetstream.add_consumer("UNFIT", config, durable_name="job"))
    try:
        with pytest.raises(UnsuitableConsumerError, match=reason):
            readers(builder(nats, "UNFIT"))
    finally:
        on(nats, lambda jetstream: jetstream.delete_consumer("UNFIT", "job"))


def test_a_consumer_that_allows_little_in_flight_is_warned_about(
    nats: NatsServer, readers: Callable[..., Reader], caplog: pytest.LogCaptureFixture
) -> None:
    publish(nats, "NARROW", [b"%d" % n for n in range(25)])
    narrow = ConsumerConfig(durable_name="job", max_ack_pending=10, ack_wait=0.5)
    on(nats, lambda jetstream: jetstream.add_consumer("NARROW", narrow))
    with caplog.at_level(logging.WARNING):
        reader = readers(builder(nats, "NARROW"))
    assert "allows 10 unacknowledged messages" in caplog.text
    reader.read(until=lambda: len(reader.records) == 10)
    reader.checkpoint()
    reader.read(until=lambda: len(reader.records) == 20)
    reader.checkpoint()
    assert sorted(map(int, reader.read())) == list(range(25))


def test_settings_of_its_own_consumer_follow_the_source(
    nats: NatsServer, readers: Callable[..., Reader]
) -> None:
    publish(nats, "CHANGED", [b"x"])
    readers(builder(nats, "CHANGED")).close()
    readers(builder(nats, "CHANGED").set_ack_wait(Duration.of_seconds(7)))
    assert consumer_of(nats, "CHANGED", "job").config.ack_wait == 7
