"""A real Prometheus that scrapes one address."""

from __future__ import annotations

import json
import os
import shutil
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.errors import MissingServerError
from penstock.testing.servers.cache import servers_directory
from penstock.testing.servers.server_process import ServerProcess

_PROGRAM = "prometheus"
_CONFIGURATION = """
global: {{scrape_interval: 4s, scrape_timeout: 4s}}
scrape_configs:
  - job_name: penstock
    static_configs: [{{targets: ["{target}"]}}]
    authorization: {{credentials: "{token}"}}
"""


def prometheus_binary() -> Path:
    """Return the server program: the system's, or the one that `make setup-prometheus` fetched."""
    fetched = servers_directory() / "prometheus" / "usr" / "bin" / _PROGRAM
    if (found := shutil.which(_PROGRAM)) is not None:
        return Path(found)
    if os.access(fetched, os.X_OK):
        return fetched
    server, remedy = "Prometheus", "run `make setup-prometheus`"
    raise MissingServerError(server, f"{_PROGRAM} on PATH or in {fetched.parent}", remedy)


class PrometheusServer(ServerProcess):
    """Prometheus on a loopback port, which scrapes `target` (host:port) every few seconds."""

    name = "Prometheus"

    def __init__(
        self,
        target: str,
        token: str = "none",
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        self._binary = prometheus_binary()
        self._target = target
        self._token = token
        super().__init__(directory)

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels and the value of each series that an expression selects now."""
        answer = self._get(f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
        return [(s["metric"], float(s["value"][1])) for s in answer["data"]["result"]]

    def last_error(self) -> str:
        """Return why the last scrape failed; empty if it did not."""
        (target,) = self._get("/api/v1/targets")["data"]["activeTargets"]
        return str(target["lastError"])

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self.host}:{self.port}{path}", timeout=10) as answer:
            return json.load(answer)

    def _prepare(self) -> None:
        text = _CONFIGURATION.format(target=self._target, token=self._token)
        (self.directory / "prometheus.yml").write_text(text)

    def _command(self) -> Sequence[str]:
        return [
            str(self._binary),
            f"--config.file={self.directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address={self.host}:{self.port}",
        ]

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.host}:{self.port}/-/ready", timeout=1) as ok:
                return bool(ok.status == 200)
        except OSError:
            return False
