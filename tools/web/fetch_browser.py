"""Have a browser and axe-core, for the tests of the dashboard.

The browser is the system's chromium; where Debian's packages can be installed, it is installed.
axe-core comes through `npm` into the cache of servers, once.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from penstock.testing.servers.cache import servers_directory

AXE = "4.14.0"
AXE_SHA256 = "2277b0a3ef47af9b52497faa3e71598e86e0a0e5e6eb295207a5657ede4709af"
"""Of the package as npm packs it."""
PACKAGES = ("chromium", "fonts-inter")


def main() -> int:
    """Fetch what is missing, and say so; 1 if something cannot be had."""
    return 0 if _has_browser() & _has_axe() else 1


def _has_browser() -> bool:
    found = shutil.which("chromium")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        print("installing chromium with apt-get (100 MB)")
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES]
        # A new machine may not know its packages yet.
        if subprocess.run(install, capture_output=True, check=False).returncode != 0:
            subprocess.run(["apt-get", "update", "-qq"], capture_output=True, check=False)
            subprocess.run(install, capture_output=True, check=False)
        found = shutil.which("chromium")
    if found is None:
        print("there is no chromium: install it (Debian: apt-get install chromium, as root)")
        return False
    print(f"the browser is {found}")
    return True


def _has_axe() -> bool:
    place = servers_directory() / f"axe-core-{AXE}" / "axe.min.js"
    if not place.is_file():
        packed = _packed(f"axe-core@{AXE}")
        if packed is None:
            print("axe-core cannot be fetched: it takes npm (Debian: apt-get install npm)")
            return False
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            member = archive.extractfile("package/axe.min.js")
            assert member is not None
            place.parent.mkdir(parents=True, exist_ok=True)
            new = place.with_suffix(".new")
            new.write_bytes(member.read())
            new.rename(place)
    print(f"axe-core is in {place.parent}")
    return True


def _packed(spec: str) -> bytes | None:
    with tempfile.TemporaryDirectory() as directory:
        try:
            subprocess.run(
                ["npm", "pack", "--silent", spec], cwd=directory, capture_output=True, check=False
            )
        except FileNotFoundError:
            return None
        found = list(Path(directory).glob("*.tgz"))
        packed = found[0].read_bytes() if found else b""
    return packed if hashlib.sha256(packed).hexdigest() == AXE_SHA256 else None


if __name__ == "__main__":
    sys.exit(main())
