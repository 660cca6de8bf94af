"""How a user's Kafka properties reach the clients that talk to the broker.

Users write the properties of Kafka's Java clients, as in Flink. Two other clients get them
here: confluent-kafka (librdkafka), whose names differ in places, and Spark's Kafka reader,
which refuses some. confluent-kafka is an optional extra and only imported where it is used.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any

from penstock.errors import RuntimeSetupError

__all__ = ["KafkaProperties", "confluent", "new_admin", "new_consumer", "new_producer"]

_log = logging.getLogger(__name__)

_PENSTOCK_ONLY = frozenset(
    {
        "client.id.prefix",
        "commit.offsets.on.checkpoint",
        "partition.discovery.interval.ms",
        "register.consumer.metrics",
        "register.producer.metrics",
    }
)
"""What a source or sink reads itself, under Flink's names; no client knows it."""

_OTHER_NAME = {
    "buffer.memory": "queue.buffering.max.kbytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.truststore.location": "ssl.ca.location",
}

# Known to both, but with Java classes as values.
_JAVA_VALUES = frozenset({"partition.assignment.strategy", "ssl.truststore.password"})

_REFUSED_BY_SPARK = frozenset(
    {
        "auto.offset.reset",
        "client.id",
        "enable.auto.commit",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "value.deserializer",
        "value.serializer",
    }
)

# Rather a property too many: this is only about what is shown.
_SECRET_WORDS = ("password", "secret", "token", "key", "jaas.config", "oauthbearer.config")

_JAAS_LOGIN = re.compile(r'(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;]+))')


class KafkaProperties(Mapping[str, str]):
    """The properties of a Java client, frozen; all values are strings."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._values = {str(key): _java_text(value) for key, value in (values or {}).items()}

    def with_values(self, values: Mapping[str, Any]) -> KafkaProperties:
        """Return these and further properties, which win."""
        return KafkaProperties({**self._values, **values})

    def with_defaults(self, values: Mapping[str, Any]) -> KafkaProperties:
        """Return these and further properties, which lose."""
        return KafkaProperties({**values, **self._values})

    def is_true(self, name: str, default: bool) -> bool:
        """Tell a property that is true or false, as Java reads it."""
        value = self._values.get(name)
        return default if value is None else value.strip().lower() == "true"

    def for_librdkafka(self) -> dict[str, str]:
        """Return what confluent-kafka understands of them, under its names.

        What it does not know is left out, as Java's clients do, and told in the debug log.
        """
        told: dict[str, str] = {}
        for name, value in self._values.items():
            if name == "sasl.jaas.config":
                told.update(_login(value))
            elif not (_is_own(name) or name in _JAVA_VALUES):
                told[_OTHER_NAME.get(name, name)] = _other_value(name, value)
        known = {name: value for name, value in told.items() if _knows(name, value)}
        for name in sorted(told.keys() - known.keys()):
            _log.debug("Kafka property %s is not known to librdkafka and left out", name)
        return known

    def for_spark(self) -> dict[str, str]:
        """Return them as options of Spark's Kafka reader, without those it refuses."""
        return {
            f"kafka.{name}": value
            for name, value in self._values.items()
            if not (_is_own(name) or name in _REFUSED_BY_SPARK)
        }

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        shown = {k: "***" if _is_secret(k) else v for k, v in self._values.items()}
        return f"KafkaProperties({shown!r})"


def confluent() -> ModuleType:
    """Import the Kafka client of the extra ``kafka``."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        message = "Kafka needs confluent-kafka on driver and workers: pip install 'penstock[kafka]'"
        raise RuntimeSetupError(message) from error
    return confluent_kafka


def new_consumer(properties: KafkaProperties, **settings: Any) -> Any:
    """Open a consumer that commits nothing by itself; ``settings`` write dots as ``_``."""
    defaults = {"group.id": "penstock", "enable.auto.commit": "false"}
    return confluent().Consumer({**defaults, **_quiet(properties), **_dotted(settings)})


def new_producer(properties: KafkaProperties, **settings: Any) -> Any:
    """Open a producer; ``settings`` write dots as ``_``."""
    return confluent().Producer({**_quiet(properties), **_dotted(settings)})


def new_admin(properties: KafkaProperties) -> Any:
    """Open an admin client."""
    return confluent().admin.AdminClient(_quiet(properties))


def _quiet(properties: KafkaProperties) -> dict[str, str]:
    # librdkafka would write every failed connection to stderr; callers see and report errors.
    # It would also wait up to 10 s to connect again to a broker that is back.
    defaults = {"log_level": "2", "reconnect.backoff.max.ms": "1000"}
    return {**defaults, **properties.for_librdkafka()}


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name if callable(value) else name.replace("_", "."): value
        for name, value in settings.items()
    }


def _java_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_own(name: str) -> bool:
    return name in _PENSTOCK_ONLY or name.startswith("penstock.")


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET_WORDS)


def _login(jaas: str) -> dict[str, str]:
    """Find user and password in the one line Java's clients want for PLAIN and SCRAM."""
    found = {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted else plain
        for name, quoted, plain in _JAAS_LOGIN.findall(jaas)
    }
    if found.keys() != {"username", "password"}:
        _log.warning("sasl.jaas.config holds no username and password; the driver ignores it")
        return {}
    return {f"sasl.{name}": value for name, value in found.items()}


def _other_value(name: str, value: str) -> str:
    if name == "buffer.memory" and value.strip().isdigit():
        return str(max(1, int(value) // 1024))
    if name == "ssl.endpoint.identification.algorithm" and not value.strip():
        return "none"
    return value


@lru_cache(maxsize=1024)
def _knows(name: str, value: str) -> bool:
    """Tell whether librdkafka has a property; a bad value is left for the real client to refuse.

    It has no list to ask. Its clients refuse the first unknown property, so one that never
    exists keeps this one from coming to life.
    """
    kafka = confluent()
    try:
        kafka.Producer({name: value, "": ""})
    except kafka.KafkaException as error:
        return f'No such configuration property: "{name}"' not in error.args[0].str()
    return True
