"""Fetch a Kafka broker and Spark's Kafka connector, once, into a cache outside the repository.

Everything comes through `mvn` and whatever repositories it is set up with. What is there already
and fits the pom files and the installed PySpark is left alone. A fetch that dies half way leaves
no stamp, so the next one starts over.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from penstock.errors import PenstockError
from penstock.testing.servers.kafka_broker import LIGHT_JVM, KafkaBroker
from penstock.testing.servers.kafka_files import KAFKA_VERSION, KafkaFiles

HERE = Path(__file__).parent
BROKER = HERE / "kafka-broker" / "pom.xml"
CONNECTOR = HERE / "kafka-connector" / "pom.xml"


def main() -> int:
    """Fetch what is missing and say so; 1 if it cannot be had."""
    files = KafkaFiles.in_cache()
    wanted = _fingerprint()
    if not files.stamp.is_file() or files.stamp.read_text() != wanted:
        print(f"fetching Kafka and Spark's connector into {files.home} (60 MB, half a minute)")
        if not _fetch(files):
            return 1
        files.stamp.write_text(wanted)
    if not files.classes.is_file():
        _archive_classes(files)
    print(f"Kafka is in {files.home}")
    return 0


def _fetch(files: KafkaFiles) -> bool:
    if shutil.which("mvn") is None:
        print("Kafka cannot be fetched: mvn is not installed (Debian: apt-get install maven)")
        return False
    files.stamp.unlink(missing_ok=True)
    files.classes.unlink(missing_ok=True)
    if not _copy_jars(BROKER, files.broker, f"-Dkafka.version={KAFKA_VERSION}"):
        print("the Kafka broker cannot be fetched")
        return False
    spark = version("pyspark")
    own = [f"-Dconnector.version={spark}", f"-Dtoken-provider.version={spark}"]
    if _copy_jars(CONNECTOR, files.connector, *own, quiet=True):
        return True
    print(f"Spark {spark}'s Kafka connector is not to be had: taking the versions in {CONNECTOR}")
    if _copy_jars(CONNECTOR, files.connector):
        return True
    print("Spark's Kafka connector cannot be fetched")
    return False


def _archive_classes(files: KafkaFiles) -> None:
    """Run a broker once and keep its classes; without them every start takes longer."""
    print("starting the broker once, for quicker starts later")
    archive = files.classes.with_suffix(".new")
    try:
        with KafkaBroker(jvm=(*LIGHT_JVM, f"-XX:ArchiveClassesAtExit={archive}")) as broker:
            broker.create_topic("warm")
            broker.stop()
        archive.replace(files.classes)
    except (OSError, PenstockError) as error:
        print(f"that did not work, and brokers will start slower: {error}")


def _copy_jars(pom: Path, into: Path, *options: str, quiet: bool = False) -> bool:
    fetched = into.with_suffix(".new")
    shutil.rmtree(fetched, ignore_errors=True)
    fetched.mkdir(parents=True)
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", *options]
    scope = ["-DincludeScope=runtime", f"-DoutputDirectory={fetched}"]
    done = subprocess.run(command + scope, capture_output=True, text=True, check=False)
    if done.returncode != 0 and not quiet:
        print(next((line for line in done.stdout.splitlines() if "ERROR" in line), done.stderr))
    if done.returncode != 0:
        return False
    shutil.rmtree(into, ignore_errors=True)
    fetched.rename(into)
    return True


def _fingerprint() -> str:
    poms = hashlib.sha256(BROKER.read_bytes() + CONNECTOR.read_bytes()).hexdigest()
    return f"pyspark {version('pyspark')}\npoms {poms}\n"


if __name__ == "__main__":
    sys.exit(main())
