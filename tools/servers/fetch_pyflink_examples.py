"""Fetch the examples that ship in PyFlink's wheel, once, into a cache outside the repository.

The wheel (3 MB; Flink's own jars are in another one) comes through `pip` and whatever index it is
set up with, and is checked. Only the examples of the DataStream API are kept.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.parity.wheel_examples import VERSION, ExampleFiles

SHA256 = "0e5f612704de1610b153e919c0564b62ad513cddfcf4960f5a021658cdf41a13"
"""Of the one wheel that is taken, on whatever machine: its examples are the same in all."""

_WHEEL = ("--python-version", "3.11", "--platform", "manylinux2014_x86_64")
_FOLDER = "pyflink/examples/datastream/"


def main() -> int:
    """Fetch them if they are missing, and say so; 1 if they cannot be had."""
    files = ExampleFiles.in_cache()
    if not files.home.is_dir():
        print(f"fetching PyFlink's examples into {files.home} (3 MB)")
        with tempfile.TemporaryDirectory() as directory:
            wheel = _wheel(Path(directory))
            if wheel is None:
                return 1
            _unpack(wheel, files.home)
    print(f"PyFlink's examples are in {files.home}")
    return 0


def _wheel(directory: Path) -> Path | None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", *_WHEEL, "--dest", str(directory)]
    done = subprocess.run([*command, f"apache-flink=={VERSION}"], check=False)
    if done.returncode != 0:
        print("PyFlink's wheel cannot be fetched")
        return None
    (wheel,) = directory.glob("*.whl")
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != SHA256:
        print(f"{wheel.name} is not the wheel it should be: its SHA-256 is another one")
        return None
    return wheel


def _unpack(wheel: Path, home: Path) -> None:
    fetched = home.with_suffix(".new")
    shutil.rmtree(fetched, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(_FOLDER) and name.endswith(".py"):
                path = fetched / name.removeprefix(_FOLDER)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(name))
    fetched.rename(home)


if __name__ == "__main__":
    sys.exit(main())
