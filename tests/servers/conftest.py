"""What tests against servers share."""

from __future__ import annotations

import pytest

from penstock.testing.servers.kafka_broker import KafkaBroker
from tests.servers.kafka_source_case import Records, new_topic, produce


@pytest.fixture(scope="module")
def filled(kafka: KafkaBroker) -> tuple[str, Records]:
    topic = new_topic(kafka, 3)
    return topic, produce(kafka, topic, {0: 300, 1: 50, 2: 0})
