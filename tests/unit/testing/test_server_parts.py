from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import MissingServerError
from penstock.testing.servers import process_tree
from penstock.testing.servers.free_port import free_port
from penstock.testing.servers.kafka_broker import KafkaBroker
from penstock.testing.servers.kafka_files import connector_jars
from tests.conftest import made_or_skipped
from tests.servers.request_watch import kafka_request, request_with


def request(api_key: int, correlation: int, body: bytes) -> bytes:
    message = struct.pack(">hhi", api_key, 0, correlation) + body
    return struct.pack(">i", len(message)) + message


def answer(correlation: int, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation) + body


def pieces(text: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({cut % (len(text) + 1) for cut in cuts} | {len(text)})
    return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


CUTS = st.lists(st.integers(0, 500), max_size=12)
BODIES = st.lists(st.tuples(st.sampled_from([0, 3, 26]), st.binary(max_size=30)), max_size=8)


@given(BODIES, CUTS)
def test_kafka_requests_are_counted_however_their_bytes_arrive(
    bodies: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    watch = kafka_request(26)()
    text = b"".join(request(key, n, body) for n, (key, body) in enumerate(bodies))
    assert sum(map(watch.on_request, pieces(text, cuts))) == sum(key == 26 for key, _ in bodies)


@given(CUTS)
def test_the_answer_to_a_kafka_request_is_found_by_its_correlation_id(cuts: list[int]) -> None:
    watch = kafka_request(26)()
    assert watch.on_request(request(0, 6, b"produce") + request(26, 7, b"commit")) == 1
    assert not watch.on_answer(answer(6, b"yes"))
    *before, last = [piece for piece in pieces(answer(7, b"done"), cuts) if piece]
    assert not any(map(watch.on_answer, before))
    assert watch.on_answer(last)


@given(st.binary(max_size=20), st.binary(max_size=20), CUTS)
def test_bytes_are_found_once_however_they_arrive(
    before: bytes, after: bytes, cuts: list[int]
) -> None:
    watch = request_with(b"COMMIT PREPARED")()
    text = before + b"COMMIT PREPARED" + after
    assert sum(map(watch.on_request, pieces(text, cuts))) == 1


def test_a_single_byte_can_be_watched_for() -> None:
    watch = request_with(b"X")()
    assert [watch.on_request(b"aX"), watch.on_request(b"b"), watch.on_request(b"XX")] == [1, 0, 2]


def test_a_process_is_identified_by_pid_and_start_time() -> None:
    assert process_tree.is_alive(os.getpid())
    assert process_tree.start_time(os.getpid()) == process_tree.start_time(os.getpid())
    assert os.getpid() in process_tree.tree(os.getppid())
    assert process_tree.start_time(2**22 + 1) is None
    assert not process_tree.is_alive(2**22 + 1)


def test_a_free_port_is_not_an_ephemeral_port() -> None:
    first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    assert not int(first) <= free_port() <= int(last)


def test_missing_jars_are_an_error_that_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_SERVERS_DIR", str(tmp_path))
    with pytest.raises(MissingServerError, match=f"{tmp_path}.*run `make setup-kafka`"):
        KafkaBroker()
    with pytest.raises(MissingServerError, match="make setup-kafka"):
        connector_jars()


def test_a_test_without_its_server_is_skipped_unless_servers_are_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_SERVERS_DIR", str(tmp_path))
    monkeypatch.delenv("PENSTOCK_REQUIRE_SERVERS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="run `make setup-kafka`"):
        made_or_skipped(KafkaBroker)
    monkeypatch.setenv("PENSTOCK_REQUIRE_SERVERS", "1")
    with pytest.raises(MissingServerError, match="run `make setup-kafka`"):
        made_or_skipped(KafkaBroker)
