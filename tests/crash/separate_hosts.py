"""Hosts on this machine that share no directory: network and mount namespaces, made by root.

Each host has its own address on a bridge, and its own /tmp, /var/tmp and /dev/shm; everything else
is read-only there, as programs are. The driver and servers run on the machine itself, which has the
address `gateway` and sees what is in a host's /tmp in `tmp_of`.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

_WRITABLE = ("/tmp", "/var/tmp", "/dev/shm")
_PROGRAMS = {Path(sys.prefix), Path(__file__).parents[2]}
"""They are on every host, also if they are in a directory that hosts do not share."""


class SeparateHosts:
    """A bridge, and hosts at it, known by their addresses."""

    def __init__(self, directory: Path, count: int) -> None:
        self._directory = directory
        self._bridge = f"pen{os.urandom(4).hex()}"
        number = random.SystemRandom().randrange(1 << 16)
        self._network = f"10.{number >> 8}.{number & 255}"
        self.gateway = f"{self._network}.1"
        self.addresses = [f"{self._network}.{2 + n}" for n in range(count)]

    def start(self) -> None:
        """Create it; what exists already stays if this fails."""
        _run("ip", "link", "add", self._bridge, "type", "bridge")
        _run("ip", "address", "add", f"{self.gateway}/24", "dev", self._bridge)
        _run("ip", "link", "set", self._bridge, "up")
        for address in self.addresses:
            namespace, outer = self._namespace(address), self._outer(address)
            inside = ["ip", "-netns", namespace]
            _run("ip", "netns", "add", namespace)
            _run(
                "ip", "link", "add", outer, "type", "veth", "peer", "name", "e0", "netns", namespace
            )
            _run("ip", "link", "set", outer, "master", self._bridge, "up")
            _run(*inside, "address", "add", f"{address}/24", "dev", "e0")
            _run(*inside, "link", "set", "e0", "up")
            _run(*inside, "link", "set", "lo", "up")
            for path in _WRITABLE:
                self._own(address, path).mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """Remove what was created."""
        for address in self.addresses:
            _run("ip", "netns", "delete", self._namespace(address), check=False)
            _run("ip", "link", "delete", self._outer(address), check=False)
        _run("ip", "link", "delete", self._bridge, check=False)

    def command(self, address: str, command: Sequence[str]) -> list[str]:
        """Return the command that runs another one on a host, in the same process."""
        binds = [f"mount --rbind '{self._own(address, path)}' {path}" for path in _WRITABLE[::-1]]
        for program in (p for p in _PROGRAMS if p.is_relative_to("/tmp")):
            place = self._own(address, "/tmp") / program.relative_to("/tmp")
            binds[:0] = [f"mkdir -p '{place}'", f"mount --bind '{program}' '{place}'"]
        script = " && ".join([*binds, "mount -o remount,bind,ro /", 'cd /tmp && exec "$@"'])
        enter = ["nsenter", f"--net=/run/netns/{self._namespace(address)}"]
        return [*enter, "unshare", "--mount", "sh", "-c", script, "sh", *command]

    def cut_off(self, address: str) -> None:
        """Unplug a host from the network; its processes go on."""
        _run("ip", "link", "set", self._outer(address), "down")

    def plug_in(self, address: str) -> None:
        """Connect it again."""
        _run("ip", "link", "set", self._outer(address), "up")

    def tmp_of(self, address: str) -> Path:
        """Return where this machine sees a host's /tmp."""
        return self._own(address, "/tmp")

    def files_of(self, address: str) -> list[Path]:
        """Return all files in what a host can write."""
        own = [self._own(address, path) for path in _WRITABLE]
        return [path for root in own for path in root.rglob("*") if path.is_file()]

    def _own(self, address: str, path: str) -> Path:
        return self._directory / address / path[1:].replace("/", "-")

    def _namespace(self, address: str) -> str:
        return f"{self._bridge}-{address.rpartition('.')[2]}"

    def _outer(self, address: str) -> str:
        return self._namespace(address)


@contextmanager
def separate_hosts(directory: Path, count: int = 2) -> Iterator[SeparateHosts]:
    """Provide hosts, or skip the test where this process may not create them."""
    hosts = SeparateHosts(directory, count)
    try:
        try:
            hosts.start()
            _run(*hosts.command(hosts.addresses[0], ["true"]))
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"needs root, ip and namespaces: {error}")
        yield hosts
    finally:
        hosts.close()


def _run(*command: str, check: bool = True) -> None:
    subprocess.run(command, check=check, capture_output=True, text=True)
