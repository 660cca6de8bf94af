"""Fetch a small HDFS, once, into a cache outside the repository.

Everything comes through `mvn` and whatever repositories it is set up with. The jars get their final
place only when all of them are there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from penstock.testing.servers.hdfs_server import HADOOP_VERSION, hdfs_jars

POM = Path(__file__).parent / "hdfs" / "pom.xml"


def main() -> int:
    """Fetch what is missing and say so; 1 if it cannot be had."""
    jars = hdfs_jars()
    if not jars.is_dir():
        print(f"fetching HDFS into {jars} (104 MB, a quarter of a minute)")
        if not _fetch(jars):
            return 1
    print(f"HDFS is in {jars}")
    return 0


def _fetch(jars: Path) -> bool:
    if shutil.which("mvn") is None:
        print("HDFS cannot be fetched: mvn is not installed (Debian: apt-get install maven)")
        return False
    fetched = jars.with_name(f"{jars.name}.new")
    shutil.rmtree(fetched, ignore_errors=True)
    fetched.mkdir(parents=True)
    command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"]
    options = [f"-Dhadoop.version={HADOOP_VERSION}", f"-DoutputDirectory={fetched}"]
    done = subprocess.run(
        [*command, *options, "-DincludeScope=runtime"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        print(next((line for line in done.stdout.splitlines() if "ERROR" in line), done.stderr))
        print("HDFS cannot be fetched")
        return False
    fetched.rename(jars)
    return True


if __name__ == "__main__":
    sys.exit(main())
