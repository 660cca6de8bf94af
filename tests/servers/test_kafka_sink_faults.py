"""The Kafka sink when drivers die, wake up too late, or lose the answer to a commit."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.connectors.contracts.committer import CommitOutcome, CommitRequest
from penstock.connectors.contracts.sink import DeliveryGuarantee
from penstock.testing.servers.kafka_broker import KafkaBroker
from tests.contracts.sink_harness import Attempt, Case
from tests.servers.cutting_proxy import CuttingProxy, Loss
from tests.servers.kafka_sink_case import (
    committed_records,
    exactly_once_case,
    new_topic,
    sink_builder,
)
from tests.servers.request_watch import KAFKA_END_TXN, kafka_request

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_a_driver_that_dies_or_is_suspended_before_its_commit_is_replaced(
    kafka: KafkaBroker, tmp_path: Path, end: str
) -> None:
    topic = new_topic(kafka)
    case = exactly_once_case(kafka, tmp_path, topic)
    arguments = [kafka.bootstrap, topic, str(tmp_path)]
    zombie = subprocess.Popen(
        [sys.executable, "-m", "tests.servers.kafka_zombie", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with zombie:
        assert zombie.stdout is not None
        assert zombie.stdout.readline() == "sent\n"
        zombie.send_signal(signal.SIGKILL if end == "killed" else signal.SIGSTOP)
        texts = (tmp_path / "committables").read_text().splitlines()
        committables = [bytes.fromhex(text) for text in texts]
        assert case.shown() == []
        successor = Attempt(case, tmp_path, "a2")
        assert successor.commit(committables).committed == 2
        successor.sweep([])
        expected = ["a", "x" * 100_000]
        assert case.shown() == expected
        if end == "stopped":
            zombie.send_signal(signal.SIGCONT)
            said, _ = zombie.communicate("\n", timeout=60)
            assert said.startswith("CommitFailedError")
            assert "another producer has taken over" in said
    assert case.shown() == expected
    assert case.leftovers() == []


def test_a_commit_whose_connection_is_lost_happens_once(tmp_path: Path) -> None:
    with (
        CuttingProxy(watching=kafka_request(KAFKA_END_TXN)) as proxy,
        KafkaBroker(advertised=proxy.port) as broker,
    ):
        proxy.target = broker.port
        through = SimpleNamespace(
            bootstrap=f"{proxy.host}:{proxy.port}", create_topic=broker.create_topic
        )
        topic = new_topic(through)
        builder = sink_builder(through, topic, DeliveryGuarantee.EXACTLY_ONCE)
        case = Case(builder.set_property("max.block.ms", 3000).build(), list)
        attempt = Attempt(case, tmp_path)
        committer = attempt.committer()

        def commit(text: str, checkpoint: int) -> set[CommitOutcome | None]:
            attempt.publish([text], ["x" * 70_000])
            requests = [CommitRequest(data) for data in attempt.snapshot(checkpoint).committables]
            committer.commit(requests)
            outcomes = {request.outcome for request in requests}
            if CommitOutcome.RETRY_LATER in outcomes:
                proxy.pass_through()
                committer.commit(requests)
            return outcomes

        assert commit("warm", 1) == {None}
        proxy.cut_at(loss=Loss.ANSWER)
        commit("answer lost", 2)
        assert proxy.await_cut(0)
        proxy.cut_at(loss=Loss.REQUEST)
        commit("request lost", 3)
        assert proxy.await_cut(0)
        proxy.refuse()
        assert commit("nobody there", 4) == {CommitOutcome.RETRY_LATER}
        committer.close()
        found = [value.decode() for _, value in committed_records(broker.direct, topic)]
    expected = ["warm", "answer lost", "request lost", "nobody there"]
    assert [text for text in found if not text.startswith("x")] == expected
    assert len(found) == 8
