"""Servers over job directories, for tests that call them in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

from penstock.common.storage_url import Location
from penstock.serve.application import context_of, create_app
from penstock.serve.context import ServerSettings

BASE = "http://localhost:8081"


@contextmanager
def server(directory: Location, **settings: Any) -> Iterator[TestClient]:
    """Yield a client of a server over a checkpoint directory."""
    context = context_of(ServerSettings(directory, **settings))
    with TestClient(create_app(context), base_url=BASE, raise_server_exceptions=False) as client:
        yield client


def get(client: TestClient, path: str) -> Any:
    """Return the JSON of a call that succeeds."""
    response = client.get(path)
    assert response.status_code == 200, response.text
    return response.json()
