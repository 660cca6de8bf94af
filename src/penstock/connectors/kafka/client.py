"""Creates Kafka clients from Java client properties, and calls them with timeouts and retries.

Users write Java client properties, as in Flink. They are translated for confluent-kafka
(librdkafka), which names some differently, and for Spark's Kafka reader, which rejects some.
confluent-kafka is an optional extra, imported only where it is used.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any, TypeVar

from penstock.errors import RuntimeSetupError
from penstock.redaction import redact_value

_log = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_CALLS = 8
_free_calls = threading.BoundedSemaphore(_MAX_CALLS)

_PENSTOCK_ONLY = frozenset(
    {
        "client.id.prefix",
        "commit.offsets.on.checkpoint",
        "partition.discovery.interval.ms",
        "register.consumer.metrics",
        "register.producer.metrics",
    }
)
"""Read by the source or sink itself, under Flink's names; no Kafka client knows them."""

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

# Both know these, but Java's values name Java classes.
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

_JAAS_LOGIN = re.compile(r'(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;]+))')


class KafkaProperties(Mapping[str, str]):
    """An immutable mapping of Java client properties; all values are strings."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._values = {str(key): _java_text(value) for key, value in (values or {}).items()}

    def with_defaults(self, values: Mapping[str, Any]) -> KafkaProperties:
        """Return a copy that takes ``values`` where these properties have none."""
        return KafkaProperties({**values, **self._values})

    def is_true(self, name: str, default: bool) -> bool:
        """Return a boolean property, parsed as Java does."""
        value = self._values.get(name)
        return default if value is None else value.strip().lower() == "true"

    def for_librdkafka(self) -> dict[str, str]:
        """Return the properties confluent-kafka knows, under its names.

        Unknown ones are skipped, as Java's clients do, with a line in the debug log.
        """
        translated: dict[str, str] = {}
        for name, value in self._values.items():
            if name == "sasl.jaas.config":
                translated.update(_login(value))
            elif not (_is_own(name) or name in _JAVA_VALUES):
                translated[_OTHER_NAME.get(name, name)] = _other_value(name, value)
        known = {name: value for name, value in translated.items() if _is_known(name, value)}
        for name in sorted(translated.keys() - known.keys()):
            _log.debug("Kafka property %s is unknown to librdkafka and ignored", name)
        return known

    def for_spark(self) -> dict[str, str]:
        """Return them as options of Spark's Kafka reader, without those it rejects."""
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
        return f"KafkaProperties({redact_value(self._values)!r})"


def confluent() -> ModuleType:
    """Import confluent-kafka, or raise an error that names the extra to install."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        message = (
            "Kafka needs confluent-kafka on driver and workers: "
            "pip install '/path/to/penstock[kafka]'"
        )
        raise RuntimeSetupError(message) from error
    return confluent_kafka


def new_consumer(properties: KafkaProperties, **settings: Any) -> Any:
    """Create a consumer without auto-commit; names in ``settings`` have ``_`` for dots."""
    defaults = {"group.id": "penstock", "enable.auto.commit": "false"}
    return confluent().Consumer({**defaults, **_configuration(properties), **_dotted(settings)})


def new_producer(properties: KafkaProperties, **settings: Any) -> Any:
    """Create a producer; names in ``settings`` have ``_`` for dots."""
    return confluent().Producer({**_configuration(properties), **_dotted(settings)})


def new_admin(properties: KafkaProperties) -> Any:
    """Create an admin client."""
    return confluent().admin.AdminClient(_configuration(properties))


def retry(
    query: Callable[[], T],
    timeout: float,
    pause: float,
    is_retriable: Callable[[Any], bool] = lambda error: True,
) -> T:
    """Repeat a query while it raises a retriable ``KafkaException``, until a timeout."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return query()
        except confluent().KafkaException as error:
            if not is_retriable(error.args[0]) or time.monotonic() >= deadline:
                raise
        time.sleep(pause)


def call_with_timeout(seconds: float, what: str, call: Callable[[], object]) -> None:
    """Run a call in a thread of its own, and raise a timeout if it does not return in time.

    librdkafka ignores the timeout of a request whose group coordinator is unreachable
    (confluentinc/librdkafka#5456). An abandoned call stays in its thread until the coordinator is
    back, and its client must not be used again. While too many calls are abandoned, further ones
    wait for a free thread and time out too.
    """
    deadline = time.monotonic() + seconds
    if not _free_calls.acquire(timeout=seconds):
        reason = (
            f"{what} was not called within {seconds:g} s: {_MAX_CALLS} earlier calls timed out and "
            "have not returned; if that persists while all brokers are up, restart the driver"
        )
        raise _timeout(reason)
    raised: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)
        finally:
            _free_calls.release()
            done.set()

    try:
        threading.Thread(target=run, name=f"kafka-{what}", daemon=True).start()
    except BaseException:
        _free_calls.release()
        raise
    if not done.wait(max(0.0, deadline - time.monotonic())):
        reason = f"{what} did not return within {seconds:g} s"
        raise _timeout(reason)
    if raised:
        raise raised[0]


def _timeout(reason: str) -> Exception:
    kafka = confluent()
    error: Exception = kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT, reason))
    return error


def _configuration(properties: KafkaProperties) -> dict[str, str]:
    # By default librdkafka writes every failed connection to stderr (callers report errors
    # themselves), and waits up to 10 s before it reconnects to a broker that is back.
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


def _login(jaas: str) -> dict[str, str]:
    """Extract user and password from the JAAS line that Java's clients use for PLAIN and SCRAM."""
    found = {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted else plain
        for name, quoted, plain in _JAAS_LOGIN.findall(jaas)
    }
    if found.keys() != {"username", "password"}:
        _log.warning("sasl.jaas.config has no username and password: the driver ignores it")
        return {}
    return {f"sasl.{name}": value for name, value in found.items()}


def _other_value(name: str, value: str) -> str:
    if name == "buffer.memory" and value.strip().isdigit():
        return str(max(1, int(value) // 1024))
    if name == "ssl.endpoint.identification.algorithm" and not value.strip():
        return "none"
    return value


@lru_cache(maxsize=1024)
def _is_known(name: str, value: str) -> bool:
    """Return whether librdkafka has a property; a bad value is left to the real client.

    librdkafka cannot list its properties, but a client rejects the first unknown one. The second
    property here never exists, so that no client is ever created.
    """
    kafka = confluent()
    try:
        kafka.Producer({name: value, "": ""})
    except kafka.KafkaException as error:
        return f'No such configuration property: "{name}"' not in error.args[0].str()
    return True
