"""Locates the Kafka broker and Spark's Kafka connector on this machine."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import MissingServerError
from penstock.testing.servers.cache import servers_directory

# The version of Spark's own Kafka client. Not Kafka 4.3.1: a single broker that is killed between
# the answer to a commit and the commit's markers may lose the markers (KAFKA-20734), and readers of
# committed records then never see what was committed.
KAFKA_VERSION = "3.9.2"


class KafkaFiles:
    """The directories that `make setup-kafka` fills, whether they exist or not."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.broker = home / "broker"
        """The jars of the broker."""
        self.connector = home / "connector"
        """The jars that Spark needs to read and write Kafka, without those of PySpark."""
        self.stamp = home / "fetched"
        """A file that exists only if both directories are complete."""
        self.classes = home / "classes.jsa"
        """A class data archive of the broker, which halves the CPU time of a start.

        It may be missing; another JVM ignores it.
        """

    @classmethod
    def in_cache(cls) -> KafkaFiles:
        """Return the files of the version that penstock is tested with."""
        return cls(servers_directory() / f"kafka-{KAFKA_VERSION}")

    def required(self) -> KafkaFiles:
        """Return these files, or raise an error that says how to get them."""
        if not self.stamp.is_file():
            server, remedy = "Kafka", "run `make setup-kafka`"
            raise MissingServerError(server, f"broker in {self.home}", remedy)
        return self


def connector_jars() -> str:
    """Return Spark's Kafka connector as a value for `spark.jars`."""
    jars = KafkaFiles.in_cache().required().connector.glob("*.jar")
    return ",".join(sorted(str(jar) for jar in jars))
