"""`penstock serve` as a process that tests kill and start again."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from penstock.testing.servers.server_process import ServerProcess


class DashboardServer(ServerProcess):
    """The server over one checkpoint directory."""

    name = "dashboard"

    def __init__(self, checkpoints: Path, *options: str) -> None:
        super().__init__()
        self._checkpoints = checkpoints
        self._options = options

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/"

    def _prepare(self) -> None:
        pass

    def _command(self) -> Sequence[str]:
        penstock = str(Path(sys.executable).with_name("penstock"))
        place = ["--dir", str(self._checkpoints), "--host", self.host, "--port", str(self.port)]
        return [penstock, "serve", *place, *self._options]

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}v1/config", timeout=5) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            return error.code == 401  # it asks for a token
        except (OSError, urllib.error.URLError):
            return False
