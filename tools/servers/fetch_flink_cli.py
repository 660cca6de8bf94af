"""Fetch Flink's command line, once, into a cache outside the repository.

Its scripts ship in PyFlink's wheel (3 MB), its jars in the package `apache-flink-libraries`, which
is a source archive (329 MB). Both come through `pip` and whatever index it is set up with, and are
checked. Only what the command line needs is kept.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tests.servers.flink_cli import FlinkCli

REQUIREMENTS = Path(__file__).parent / "flink" / "requirements.txt"
_WHEEL = ("--python-version", "3.11", "--platform", "manylinux2014_x86_64")
_SCRIPTS = re.compile(r"pyflink/((?:bin|conf)/[\w.-]+)")
_JARS = re.compile(r"[^/]+/deps/(bin/bash-java-utils\.jar|lib/(?:flink-dist|log4j)-[\w.-]+\.jar)")


def main() -> int:
    """Fetch it if it is missing, and say so; 1 if it cannot be had."""
    home = FlinkCli.in_cache().home
    if not home.is_dir():
        print(f"fetching Flink's command line into {home} (332 MB, a minute or two)")
        with tempfile.TemporaryDirectory() as directory:
            fetched = Path(directory)
            if not _fetch(fetched):
                return 1
            _unpack(fetched, home)
    print(f"Flink's command line is in {home}")
    return 0


def _fetch(directory: Path) -> bool:
    scripts, jars = (f"{line}\n" for line in REQUIREMENTS.read_text().splitlines()[1:])
    return _download(directory, scripts, "--only-binary", ":all:", *_WHEEL) and _download(
        directory, jars, "--no-binary", "apache-flink-libraries"
    )


def _download(directory: Path, requirement: str, *options: str) -> bool:
    pinned = directory / "requirements.txt"
    pinned.write_text(requirement)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--require-hashes", "--dest", str(directory), "-r", str(pinned)]
    done = subprocess.run([*command, *options], check=False)
    if done.returncode != 0:
        print(f"{requirement.split()[0]} cannot be fetched")
    return done.returncode == 0


def _unpack(fetched: Path, home: Path) -> None:
    new = home.with_name(f"{home.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    (wheel,) = fetched.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if (found := _SCRIPTS.fullmatch(name)) is not None:
                _write(new / found[1], archive.read(name))
    (source,) = fetched.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        for member in archive:
            found = _JARS.fullmatch(member.name)
            content = None if found is None else archive.extractfile(member)
            if found is not None and content is not None:
                _write(new / found[1], content.read())
    for script in (new / "bin").iterdir():
        script.chmod(0o755)
    (new / "log").mkdir()
    new.rename(home)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


if __name__ == "__main__":
    sys.exit(main())
