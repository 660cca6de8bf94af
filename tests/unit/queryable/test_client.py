"""The client of queryable state, against a server that listens."""

from __future__ import annotations

import runpy
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn

from penstock.common import Configuration, JobClient
from penstock.datastream import StreamExecutionEnvironment
from penstock.queryable import (
    QueryableStateClient,
    StaleAnswerError,
    StateForbiddenError,
    StateNotFoundError,
    StateRequestError,
    StateServerError,
)
from penstock.serve.application import context_of, create_app
from penstock.serve.context import ServerSettings
from penstock.serve.server import listen
from penstock.testing.inline import run_inline
from tests.unit.cli.job_fixtures import end
from tests.unit.serve.queryable.shop_job import CUSTOMERS, start_shop
from tests.unit.support import eventually

EXAMPLE = Path(__file__).parents[3] / "examples" / "customer_page.py"


@contextmanager
def listening(directory: Path) -> Iterator[str]:
    """Yield the address of a server over a checkpoint directory."""
    sockets = listen("localhost", 0)
    config = uvicorn.Config(create_app(context_of(ServerSettings(directory))), log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=(sockets,))
    thread.start()
    try:
        yield f"http://localhost:{sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueryableStateClient]:
    directory = tmp_path_factory.mktemp("checkpoints")
    job = start_shop(directory)
    with listening(directory) as url, QueryableStateClient(url) as client:
        eventually(lambda: _is_there(client))
        yield client
    end(job)


def _is_there(client: QueryableStateClient) -> bool:
    try:
        return len(list(client.scan("shop", "names", "visits"))) == CUSTOMERS
    except StateNotFoundError:
        return False


def test_values_of_keys(shop: QueryableStateClient) -> None:
    assert shop.value("shop", "orders", "orders", 3) > 0
    assert shop.value("shop", "orders", "orders", 77) is None
    assert set(shop.value("shop", "orders", "by parity", 3)) == {"even", "odd"}
    assert shop.value("shop", "names", "visits", "customer-3") > 0
    odd = shop.get("shop", "orders", "by parity", 3, map_key="odd").keys[0]
    assert [entry.map_key for entry in odd.entries] == ["odd"]
    recent = shop.get("shop", "orders", "recent", 3).keys[0].entries[0]
    assert isinstance(recent.expires, list)


def test_many_keys_come_from_one_checkpoint(shop: QueryableStateClient) -> None:
    answer = shop.get_many("shop", "orders", "count", [1, 77, 2])
    assert [key.key for key in answer.keys] == [1, 77, 2]
    assert [key.value is None for key in answer.keys] == [False, True, False]
    assert (answer.level, answer.sinks_committed) == ("committed", True)


def test_a_scan_has_every_key_once_whatever_the_pages(shop: QueryableStateClient) -> None:
    keys = [entry.key for entry in shop.scan("shop", "names", "visits", prefix="cust", limit=3)]
    assert sorted(keys) == [f"customer-{n}" for n in range(CUSTOMERS)]


def test_the_latest_state(shop: QueryableStateClient) -> None:
    answer = shop.get("shop", "orders", "count", 3, level="latest")
    assert answer.level == "latest"
    assert answer.micro_batch is not None


def test_errors_have_classes(shop: QueryableStateClient) -> None:
    with pytest.raises(StateForbiddenError, match="set_queryable"):
        shop.value("shop", "orders", "secret", 3)
    with pytest.raises(StateNotFoundError, match="Job none not found"):
        shop.value("none", "orders", "count", 3)
    with pytest.raises(StateRequestError, match="no key of type"):
        shop.value("shop", "orders", "count", "three")
    with pytest.raises(StaleAnswerError, match="are accepted"):
        shop.value("shop", "orders", "count", 3, max_staleness="0 ms")
    with socket.create_server(("localhost", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(StateServerError, match="does not answer"):
        QueryableStateClient(f"localhost:{port}").value("shop", "orders", "count", 3)
    with pytest.raises(ValueError, match="is not the address"):
        QueryableStateClient("ftp://localhost")


def test_the_customer_page_shows_what_the_job_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = runpy.run_path(str(EXAMPLE))
    clients: list[JobClient] = []
    env = run_inline(StreamExecutionEnvironment.get_execution_environment(Configuration()))
    start = env.execute_async
    monkeypatch.setattr(env, "execute", lambda name: clients.append(start(name)))
    example["run_job"](str(tmp_path), 10**12, env)
    with listening(tmp_path) as url, QueryableStateClient(url) as state:
        pages = example["web_server"](state, 0)
        threading.Thread(target=pages.serve_forever, daemon=True).start()

        def page() -> str:
            with urllib.request.urlopen(
                f"http://localhost:{pages.server_address[1]}/customer/42"
            ) as response:
                return str(response.read().decode())

        def is_shown() -> bool:
            try:
                return "<li>count: " in page()
            except OSError:
                return False

        eventually(is_shown)
        text = page()
        assert "<h1>Customer 42</h1>" in text
        assert "products: {" in text
        assert "as of checkpoint" in text
        pages.shutdown()
        pages.server_close()
    end(clients[0])
