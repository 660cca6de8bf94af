"""Fetch a Kafka broker and Spark's Kafka connector, once, into a cache outside the repository.

Everything comes through `mvn` and whatever repositories it is set up with. What is there already
and fits the pom files and the installed PySpark is left alone. A fetch that dies half way leaves
no stamp, so the next one starts over.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from penstock.testing.servers.kafka_files import KAFKA_VERSION, KafkaFiles

HERE = Path(__file__).parent
BROKER = HERE / "kafka-broker" / "pom.xml"
CONNECTOR = HERE / "kafka-connector" / "pom.xml"


def main() -> int:
    """Fetch what is missing and say so; 1 if it cannot be had."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quiet", action="store_true", help="say nothing if nothing is to do")
    quiet = parser.parse_args().quiet
    files = KafkaFiles.in_cache()
    wanted = _fingerprint()
    if files.stamp.is_file() and files.stamp.read_text() == wanted:
        if not quiet:
            print(f"Kafka is in {files.home}")
        return 0
    if shutil.which("mvn") is None:
        print("Kafka cannot be fetched: there is no mvn (Debian: apt-get install maven)")
        return 1
    print(f"fetching Kafka and Spark's connector into {files.home} (90 MB, half a minute)")
    return _fetch(files, wanted)


def _fetch(files: KafkaFiles, wanted: str) -> int:
    files.stamp.unlink(missing_ok=True)
    if not _copy_jars(BROKER, files.broker, f"-Dkafka.version={KAFKA_VERSION}"):
        print("the Kafka broker cannot be fetched")
        return 1
    spark = version("pyspark")
    own = [f"-Dconnector.version={spark}", f"-Dtoken-provider.version={spark}"]
    if not _copy_jars(CONNECTOR, files.connector, *own, quiet=True):
        print(
            f"Spark {spark}'s Kafka connector is not to be had: taking the versions in {CONNECTOR}"
        )
        if not _copy_jars(CONNECTOR, files.connector):
            print("Spark's Kafka connector cannot be fetched")
            return 1
    files.stamp.write_text(wanted)
    return 0


def _copy_jars(pom: Path, into: Path, *options: str, quiet: bool = False) -> bool:
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", *options]
    scope = ["-DincludeScope=runtime", f"-DoutputDirectory={into}"]
    done = subprocess.run(command + scope, capture_output=True, text=True, check=False)
    if done.returncode != 0 and not quiet:
        print(next((line for line in done.stdout.splitlines() if "ERROR" in line), done.stderr))
    return done.returncode == 0


def _fingerprint() -> str:
    poms = hashlib.sha256(BROKER.read_bytes() + CONNECTOR.read_bytes()).hexdigest()
    return f"pyspark {version('pyspark')}\npoms {poms}\n"


if __name__ == "__main__":
    sys.exit(main())
