"""What a NATS source knows without a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from penstock.common import Types
from penstock.common.serialization import ByteArraySchema
from penstock.common.time import Duration
from penstock.connectors.acknowledging.received_log import ReceivedLog
from penstock.connectors.contracts.source import Boundedness, SplitRange
from penstock.connectors.nats.connection import nats_client
from penstock.connectors.nats.settings import NatsSettings, sequence_of
from penstock.datastream.connectors.nats import NatsSource
from penstock.errors import RuntimeSetupError, UndecodableMessageError


def test_a_message_is_identified_by_its_stream_sequence() -> None:
    assert sequence_of("$JS.ACK.ORDERS.billing.2.17.41.1700000000000000000.5") == 17
    domain = "$JS.ACK.hub.hashed.ORDERS.billing.2.17.41.1700000000000000000.5"
    assert sequence_of(domain) == sequence_of(f"{domain}.random") == 17


def test_servers_are_shown_without_their_passwords() -> None:
    settings = NatsSettings(("nats://me:pass@one:4222", "tls://two:4222", "three"), "S", "d")
    assert settings.shown_servers == "nats://one:4222, tls://two:4222, three"


def test_secrets_are_not_in_the_settings_repr() -> None:
    servers = ("nats://me:secret@host", "nats://secret@host")
    assert "secret" not in repr(NatsSettings(servers, "S", "d", options={"token": "secret"}))


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a*", "a>", "a/b"])
def test_names_that_nats_would_reject_are_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="must not be empty or contain"):
        NatsSource.builder().set_stream(name)
    with pytest.raises(ValueError, match="must not be empty or contain"):
        NatsSource.builder().set_durable(name)


def test_invalid_settings_are_rejected() -> None:
    builder = NatsSource.builder()
    with pytest.raises(ValueError, match=r"set_stream\(\) and set_durable\(\)"):
        builder.set_stream("S").build()
    with pytest.raises(ValueError, match="at least one address"):
        builder.set_servers()
    with pytest.raises(ValueError, match="takes at least 1"):
        builder.set_max_unacknowledged(0)
    with pytest.raises(ValueError, match="takes a positive Duration"):
        builder.set_ack_wait(Duration.of_seconds(0))


@pytest.mark.parametrize(
    ("method", "given", "said"),
    [
        ("set_stream", 5, "the name of a stream must be a string; got 5"),
        ("set_durable", None, "the name of a durable consumer must be a string; got None"),
        ("set_servers", 5, "the address of a server must be a string; got 5"),
        ("set_subject", 5, "a subject must be a string; got 5"),
        ("set_ack_wait", 5, "set_ack_wait.* takes a Duration.*; got 5"),
        ("set_max_unacknowledged", "5", "takes a number of records; got '5'"),
        ("set_max_unacknowledged", True, "takes a number of records; got True"),
    ],
)
def test_arguments_of_the_wrong_type_are_rejected(method: str, given: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        getattr(NatsSource.builder(), method)(given)


def test_tasks_read_what_the_driver_received(tmp_path: Path) -> None:
    builder = NatsSource.builder().set_stream("S").set_durable("d").set_property("token", "secret")
    source = cloudpickle.loads(cloudpickle.dumps(builder.build()))
    assert (source.boundedness(), source.type_info()) == (
        Boundedness.CONTINUOUS_UNBOUNDED,
        Types.STRING(),
    )
    log = ReceivedLog(tmp_path / "log")
    log.append(["ä".encode(), b"b"])
    assert list(source.read_lists(SplitRange(str(log.directory), 0, 2))) == [["ä", "b"]]
    bounded = builder.set_bounded().set_deserializer(ByteArraySchema()).build()
    assert bounded.boundedness() is Boundedness.BOUNDED
    assert list(bounded.read_lists(SplitRange(str(log.directory), 1, 2))) == [[b"b"]]


def test_an_undecodable_message_is_shown(tmp_path: Path) -> None:
    class Whole(ByteArraySchema):
        def deserialize(self, message: bytes) -> Any:
            return int(message)

    source = NatsSource.builder().set_stream("S").set_durable("d").set_deserializer(Whole()).build()
    log = ReceivedLog(tmp_path / "log")
    log.append([b"1", b"two"])
    with pytest.raises(UndecodableMessageError, match="message b'two': ValueError"):
        list(source.read(SplitRange(str(log.directory), 0, 2)))


def test_a_missing_client_library_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nats.aio.client", None)
    with pytest.raises(RuntimeSetupError, match=r"pip install '/path/to/penstock\[nats\]'"):
        nats_client()
