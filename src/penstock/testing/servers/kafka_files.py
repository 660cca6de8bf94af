"""Where the Kafka broker and Spark's Kafka connector lie on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.errors import MissingServerError
from penstock.testing.servers.cache import servers_directory

__all__ = ["KAFKA_VERSION", "KafkaFiles", "connector_jars"]

# The version of Spark's own Kafka client. Kafka 4.3.1 was no choice: alone in its cluster and
# killed between the answer to a commit and the commit's markers, it may forget them when it comes
# back (KAFKA-20734), and no reader of committed records ever sees what was committed.
KAFKA_VERSION = "3.9.2"


@dataclass(frozen=True)
class KafkaFiles:
    """The directories that `make setup-kafka` fills, whether it did so or not."""

    home: Path

    @classmethod
    def in_cache(cls) -> KafkaFiles:
        """Return the files of the version this penstock is tested with."""
        return cls(servers_directory() / f"kafka-{KAFKA_VERSION}")

    @property
    def broker(self) -> Path:
        """The jars of the broker."""
        return self.home / "broker"

    @property
    def connector(self) -> Path:
        """The jars Spark needs to read and write Kafka, without what PySpark ships."""
        return self.home / "connector"

    @property
    def stamp(self) -> Path:
        """A file that is there only if both directories are complete."""
        return self.home / "fetched"

    @property
    def classes(self) -> Path:
        """The broker's classes as its JVM left them, which halves the work of a start.

        May be missing; a JVM of another kind passes it by.
        """
        return self.home / "classes.jsa"

    def required(self) -> KafkaFiles:
        """Return these files, or raise an error that names the way to get them."""
        if not self.stamp.is_file():
            server, remedy = "Kafka", "run `make setup-kafka`"
            raise MissingServerError(server, f"broker in {self.home}", remedy)
        return self


def connector_jars() -> str:
    """Return Spark's Kafka connector as a value for `spark.jars`."""
    jars = KafkaFiles.in_cache().required().connector.glob("*.jar")
    return ",".join(sorted(str(jar) for jar in jars))
