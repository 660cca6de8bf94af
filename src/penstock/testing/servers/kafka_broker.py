"""A real Kafka broker, the only one of its cluster."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.errors import MissingServerError, ServerNotReadyError
from penstock.testing.servers.free_port import free_port
from penstock.testing.servers.kafka_files import KafkaFiles
from penstock.testing.servers.server_process import ServerProcess

LIGHT_JVM = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_ANSWER_SECONDS = 3.0
_PROBE_SECONDS = 2.0
_RETRY_SECONDS = 0.05
# Errors of a broker that is not ready yet. While all brokers are fenced, the controller reports an
# invalid replication factor.
_TRANSIENT = frozenset(
    {
        "INVALID_REPLICATION_FACTOR",
        "LEADER_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "NOT_CONTROLLER",
        "REQUEST_TIMED_OUT",
        "_ALL_BROKERS_DOWN",
        "_PARTIAL",
        "_TIMED_OUT",
        "_TRANSPORT",
    }
)


class KafkaBroker(ServerProcess):
    """Kafka in KRaft mode: broker and controller in one process, one copy of everything.

    Clients use `bootstrap`. With `advertised` the broker advertises that port instead of its own:
    the port of a proxy before it. `direct` is always the broker itself, also for its internal
    requests. `properties` win over the defaults here. Topics are not created automatically, only
    by `create_topic`.
    """

    name = "Kafka"

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        data: str | os.PathLike[str] | None = None,
        advertised: int | None = None,
        properties: Mapping[str, str] | None = None,
        jvm: Sequence[str] = LIGHT_JVM,
    ) -> None:
        self._files = KafkaFiles.in_cache().required()
        if shutil.which("java") is None:
            raise MissingServerError(self.name, "java", "install a JDK, 17 or newer")
        super().__init__(directory)
        self.data = self.directory / "data" if data is None else data
        self._advertised = advertised
        self._internal = free_port()
        self._controller = free_port()
        self._overrides = dict(properties or {})
        self._jvm = tuple(jvm)

    @property
    def bootstrap(self) -> str:
        """The address for `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    @property
    def direct(self) -> str:
        """An address that leads to the broker itself, whatever it advertises."""
        return f"{self.host}:{self._internal}"

    def create_topic(self, name: str, partitions: int = 1, **config: object) -> str:
        """Create a topic, which must not exist, and return its name once it can be written.

        `config` are topic settings with `_` for `.`, as in `cleanup_policy="compact"`.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.cimpl import NewTopic

        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        is_asked = False

        def is_made(admin: Any) -> bool:
            nonlocal is_asked
            if not _names_a_broker(admin, _ANSWER_SECONDS):
                return False
            asked_before, is_asked = is_asked, True
            try:
                admin.create_topics([topic], request_timeout=_ANSWER_SECONDS)[name].result()
            except KafkaException as error:
                # An earlier request created it, and only its answer was late.
                if not asked_before or error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise
            return True

        def is_led(admin: Any) -> bool:
            known = admin.list_topics(name, timeout=_ANSWER_SECONDS).topics[name].partitions
            return len(known) == partitions and all(part.leader >= 0 for part in known.values())

        self._retry(is_made, f"does not create topic {name!r}")
        self._retry(is_led, f"has no leader for the {partitions} partitions of topic {name!r}")
        return name

    def _retry(self, is_done: Callable[[Any], bool], failing: str) -> None:
        """Retry until something is done, with a new client each time."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + self.start_timeout_s
        while True:
            trouble = ""
            try:
                if is_done(self._admin()):
                    return
            except KafkaException as error:
                if error.args[0].name() not in _TRANSIENT:
                    raise
                trouble = f" ({error.args[0].str()})"
            if time.monotonic() > deadline or not self.running:
                how_long = (
                    f"after {self.start_timeout_s:.0f} s" if self.running else "and has ended"
                )
                raise ServerNotReadyError(
                    self.name, f"{failing}{trouble} {how_long}", self.log_tail()
                )
            time.sleep(_RETRY_SECONDS)

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.direct, "log_level": 0})

    def _prepare(self) -> None:
        settings = self._settings()
        lines = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self.directory / "server.properties").write_text(lines)
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = self._java("kafka.tools.StorageTool", "format", "--ignore-formatted")
        # With `=`: one id in 64 starts with a dash and would be parsed as an option.
        arguments = [f"--cluster-id={cluster}", "--config", "server.properties"]
        done = subprocess.run(
            [*tool, *arguments], cwd=self.directory, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise ServerNotReadyError(
                self.name, "cannot format its data directory", done.stdout + done.stderr
            )

    def _settings(self) -> dict[str, str]:
        client, internal = f"CLIENT://{self.bootstrap}", f"INTERNAL://{self.direct}"
        controller = f"{self.host}:{self._controller}"
        shown = f"CLIENT://{self.host}:{self._advertised or self.port}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"{client},{internal},CONTROLLER://{controller}",
            "advertised.listeners": f"{shown},{internal}",
            "listener.security.protocol.map": (
                "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "inter.broker.listener.name": "INTERNAL",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data),
            "auto.create.topics.enable": "false",
            "num.partitions": "1",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # A killed broker can register again only when its old session has expired.
            "broker.heartbeat.interval.ms": "500",
            "broker.session.timeout.ms": "2500",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            # Tests write records with any timestamp, which must not expire.
            "log.retention.ms": "-1",
            "log.cleaner.dedupe.buffer.size": "4194304",
            "num.network.threads": "2",
            "num.io.threads": "4",
            "background.threads": "2",
            **self._overrides,
        }

    def _command(self) -> Sequence[str]:
        return self._java("kafka.Kafka", "server.properties")

    def _java(self, main: str, *arguments: str) -> list[str]:
        logging = "-Dorg.slf4j.simpleLogger."
        classes = self._files.classes
        return [
            "java",
            *([f"-XX:SharedArchiveFile={classes}"] if classes.is_file() else ()),
            *self._jvm,
            f"{logging}defaultLogLevel=warn",
            f"{logging}showDateTime=true",
            f"{logging}log.kafka.server.KafkaRaftServer=info",
            "-cp",
            f"{self._files.broker}/*",
            main,
            *arguments,
        ]

    def _answers(self) -> bool:
        with contextlib.suppress(Exception):
            return self._takes_topics()
        return False

    def _takes_topics(self) -> bool:
        """Return whether the controller considers this broker active.

        A fenced broker still listens and answers. The controller processes the request after all
        earlier ones, so it does not count a broker whose session has expired.
        """
        from confluent_kafka.cimpl import NewTopic

        admin, name = self._admin(), "probe"
        if not _names_a_broker(admin, _PROBE_SECONDS):
            return False
        probe = NewTopic(name, num_partitions=1, replication_factor=1)
        answers = admin.create_topics([probe], validate_only=True, request_timeout=_PROBE_SECONDS)
        answers[name].result()
        return True


def _names_a_broker(admin: Any, seconds: float) -> bool:
    """Return whether a client has learned of a broker.

    A client that learned of none, as from a fenced broker, waits for a controller and never asks
    again.
    """
    return bool(admin.list_topics(timeout=seconds).brokers)
