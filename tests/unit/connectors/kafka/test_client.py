import sys

import cloudpickle
import pytest

from penstock.connectors.kafka.client import KafkaProperties, confluent, new_consumer
from penstock.errors import RuntimeSetupError


def test_java_properties_get_librdkafka_names() -> None:
    properties = KafkaProperties(
        {
            "bootstrap.servers": "a:1",
            "fetch.max.wait.ms": 50,
            "request.timeout.ms": "1000",
            "isolation.level": "read_committed",
            "ssl.truststore.location": "/ca.pem",
            "buffer.memory": 33554432,
        }
    )
    assert properties.for_librdkafka() == {
        "bootstrap.servers": "a:1",
        "fetch.wait.max.ms": "50",
        "socket.timeout.ms": "1000",
        "isolation.level": "read_committed",
        "ssl.ca.location": "/ca.pem",
        "queue.buffering.max.kbytes": "32768",
    }


def test_properties_unknown_to_librdkafka_are_ignored() -> None:
    properties = KafkaProperties(
        {
            "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
            "fetch.max.bytes.no.such": "1",
            "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
            "partition.discovery.interval.ms": "10",
            "penstock.kafka.on-lost-records": "skip",
            "my.own.thing": "x",
            "session.timeout.ms": "6000",
        }
    )
    assert properties.for_librdkafka() == {"session.timeout.ms": "6000"}


def test_an_invalid_value_is_left_for_the_client_to_reject() -> None:
    properties = KafkaProperties({"session.timeout.ms": "soon"})
    assert properties.for_librdkafka() == {"session.timeout.ms": "soon"}
    with pytest.raises(Exception, match=r"session\.timeout\.ms"):
        new_consumer(properties)


@pytest.mark.parametrize("password", ['"s3 \\"cret;"', "s3cret"])
def test_a_plain_jaas_login_becomes_user_and_password(password: str) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{module} required username="alice" password={password};'
    translated = KafkaProperties(
        {"sasl.jaas.config": jaas, "sasl.mechanism": "PLAIN"}
    ).for_librdkafka()
    assert translated["sasl.username"] == "alice"
    assert translated["sasl.password"] == ('s3 "cret;' if '"' in password else "s3cret")
    assert translated["sasl.mechanism"] == "PLAIN"


def test_other_jaas_logins_are_ignored() -> None:
    jaas = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;"
    assert KafkaProperties({"sasl.jaas.config": jaas}).for_librdkafka() == {}


def test_hostname_checks_are_switched_off_in_both_spellings() -> None:
    name = "ssl.endpoint.identification.algorithm"
    assert KafkaProperties({name: ""}).for_librdkafka() == {name: "none"}
    assert KafkaProperties({name: "https"}).for_librdkafka() == {name: "https"}


def test_spark_gets_all_properties_but_those_it_rejects() -> None:
    properties = KafkaProperties(
        {
            "bootstrap.servers": "a:1",
            "group.id": "g",
            "max.poll.records": "500",
            "auto.offset.reset": "latest",
            "enable.auto.commit": "false",
            "key.deserializer": "x",
            "interceptor.classes": "x",
            "commit.offsets.on.checkpoint": "true",
            "penstock.kafka.on-lost-records": "skip",
        }
    )
    assert properties.for_spark() == {
        "kafka.bootstrap.servers": "a:1",
        "kafka.group.id": "g",
        "kafka.max.poll.records": "500",
    }


def test_properties_are_strings_as_in_java_and_can_be_pickled() -> None:
    properties = KafkaProperties({"enable.idempotence": True, "linger.ms": 5})
    assert dict(properties) == {"enable.idempotence": "true", "linger.ms": "5"}
    assert cloudpickle.loads(cloudpickle.dumps(properties)) == properties
    assert KafkaProperties({**properties, "linger.ms": 7})["linger.ms"] == "7"
    assert properties.with_defaults({"linger.ms": 8})["linger.ms"] == "5"
    assert properties.with_defaults({"queued.min.messages": 8})["queued.min.messages"] == "8"
    assert properties["linger.ms"] == "5"


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "sasl.jaas.config",
        "ssl.key.pem",
        "ssl.keystore.key",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.client.secret",
        "ssl.Key.Password",
    ],
)
def test_secrets_are_not_shown(name: str) -> None:
    shown = repr(KafkaProperties({name: "s3cret", "linger.ms": 5}))
    assert "s3cret" not in shown
    assert "'linger.ms': '5'" in shown


def test_a_missing_client_is_reported_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(RuntimeSetupError, match=r"pip install '/path/to/penstock\[kafka\]'"):
        confluent()
