"""A real Kafka broker, alone in its cluster."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import MissingServerError, ServerError, ServerNotReadyError
from penstock.testing.servers.free_port import free_port
from penstock.testing.servers.kafka_files import KafkaFiles
from penstock.testing.servers.server_process import ServerProcess

__all__ = ["LIGHT_JVM", "KafkaBroker"]

LIGHT_JVM = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_TIMEOUT = 10.0


class KafkaBroker(ServerProcess):
    """Kafka in KRaft mode: broker and controller in one process, one copy of everything.

    Clients use `bootstrap`. With `advertised` the broker sends them on to that port instead of its
    own: the port of a proxy in front of it. `direct` always leads to the broker itself; what the
    broker says to itself goes there too. `properties` win over the settings made here. Topics
    are made by `create_topic`, never by a mere mention.
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
        """An address whose clients stay with the broker, whatever it advertises."""
        return f"{self.host}:{self._internal}"

    def create_topic(self, name: str, partitions: int = 1, **config: object) -> str:
        """Create a topic and return its name once it can be written; an error if there is one.

        `config` are topic settings with `_` for `.`, as in `cleanup_policy="compact"`.
        """
        from confluent_kafka.cimpl import NewTopic

        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        admin = self._admin()
        admin.create_topics([topic])[name].result(_TIMEOUT)
        for _ in range(100):
            known = admin.list_topics(name, timeout=_TIMEOUT).topics[name].partitions
            if len(known) == partitions and all(part.leader >= 0 for part in known.values()):
                return name
            time.sleep(0.05)
        message = f"topic {name!r} has no leader for its {partitions} partitions"
        raise ServerError(message)

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.direct, "log_level": 0})

    def _prepare(self) -> None:
        settings = self._settings()
        lines = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self.directory / "server.properties").write_text(lines)
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = self._java("kafka.tools.StorageTool", "format", "--ignore-formatted")
        # With `=`: every 64th id begins with a dash, and would be taken for an option.
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
            # A killed broker is let in again only when its old session has run out.
            "broker.heartbeat.interval.ms": "500",
            "broker.session.timeout.ms": "2500",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            # Tests write records of any time, and expect to find them.
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
        try:
            socket.create_connection((self.host, self.port), timeout=1.0).close()
        except OSError:
            return False
        with contextlib.suppress(Exception):
            return bool(self._admin().list_topics(timeout=2.0).brokers)
        return False
