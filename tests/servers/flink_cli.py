"""Flink's own command line, as a client of `penstock serve`."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import MissingServerError
from penstock.testing.servers.cache import servers_directory

VERSION = "2.3.0"
_TIMEOUT_S = 120


@dataclass(frozen=True)
class FlinkCli:
    """What `make setup-flink-cli` fetches, whether it did so or not."""

    home: Path

    @classmethod
    def in_cache(cls) -> FlinkCli:
        return cls(servers_directory() / f"flink-{VERSION}")

    def required(self) -> FlinkCli:
        """Return this, or raise an error that names the way to get it."""
        if not self.home.is_dir():
            what, remedy = "Flink's command line", "run `make setup-flink-cli`"
            raise MissingServerError(what, f"files in {self.home}", remedy)
        return self

    def run(self, scratch: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command; its logs go into a scratch directory."""
        environment = os.environ | {"FLINK_HOME": str(self.home), "FLINK_LOG_DIR": str(scratch)}
        return subprocess.run(
            [str(self.home / "bin" / "flink"), *arguments],
            env=environment,
            cwd=scratch,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
