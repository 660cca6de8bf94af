"""State over HTTP: levels, opt-in, keys, pages, errors, and what a server keeps open."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from penstock.serve.http.tokens import read_tokens
from penstock.serve.jobs.hex_ids import hex_id
from penstock.serve.queryable.scratch import Scratch, remove_abandoned
from tests.unit.cli.job_fixtures import end
from tests.unit.serve.queryable.shop_job import CUSTOMERS, start_shop
from tests.unit.serve.serve_fixtures import get, server
from tests.unit.serve.test_guard import OPERATOR, READER, tokens_file
from tests.unit.support import eventually

COUNT = "/jobs/shop/state/orders/count"


@pytest.fixture(scope="module", params=["hashmap", "rocksdb", "memory"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TestClient]:
    """Yield a client of a server with a running job that has completed a checkpoint."""
    directory = tmp_path_factory.mktemp("checkpoints")
    job = start_shop(directory, state__backend__type=request.param)
    with server(directory) as client:
        eventually(lambda: client.get(f"{COUNT}?key=3").status_code == 200)
        eventually(lambda: get(client, f"{COUNT}?key=3")["keys"][0]["entries"])
        eventually(lambda: get(client, "/jobs/shop/state/names/visits?limit=1000")["entries"])
        yield client
    end(job)


def test_an_answer_names_level_checkpoint_and_age(running: TestClient) -> None:
    answer = get(running, f"{COUNT}?key=3")
    assert (answer["job"], answer["level"], answer["state"]) == ("shop", "committed", "count")
    assert answer["checkpoint"] >= 1
    assert answer["sinks_committed"] is True
    assert abs(time.time() * 1000 - answer["time"] - answer["age"]) < 5000
    (entry,) = answer["keys"][0]["entries"]
    assert entry["key"] == 3
    assert entry["value"] > 0


def test_ids_of_flinks_clients_and_queryable_names_are_accepted(running: TestClient) -> None:
    path = f"/v1/jobs/{hex_id('shop')}/state/{hex_id('orders')}/orders?key=3"
    assert get(running, path)["state"] == "count"


def test_checkpoint_ids_never_go_back_and_states_agree_within_one_answer(
    running: TestClient,
) -> None:
    last = 0
    for _ in range(60):
        answer = get(running, "/jobs/shop/state?key=3")
        assert answer["checkpoint"] >= last
        last = answer["checkpoint"]
        found = {s["state"]: s["keys"][0]["entries"] for s in answer["states"]}
        count = found["count"][0]["value"]
        newest = max(entry["value"] for entry in found["by parity"])
        # The n-th order of customer 3 is number 3 + 10 (n - 1): both states are of one moment.
        assert newest == 3 + CUSTOMERS * (count - 1)
        assert found["recent"][0]["value"][-1] == newest
        assert set(found) == {"count", "by parity", "recent"}, "no others take this key"


def test_the_latest_state_is_that_of_the_running_job(running: TestClient) -> None:
    before = get(running, f"{COUNT}?key=3")
    latest = get(running, f"{COUNT}?key=3&level=latest")
    assert latest["level"] == "latest"
    assert latest["micro_batch"] >= 1
    assert latest["keys"][0]["entries"][0]["value"] >= before["keys"][0]["entries"][0]["value"]
    page = get(running, "/jobs/shop/state/names/visits?level=latest&limit=3")
    assert len(page["entries"]) == 3
    assert running.get(f"{COUNT[:-5]}secret?key=3&level=latest").status_code == 403
    assert running.get("/jobs/shop/state/orders/none?key=3&level=latest").status_code == 404
    assert running.get("/jobs/shop/state/none/none?key=3&level=latest").status_code == 404
    assert running.get(f"{COUNT}?key=x&level=latest").status_code == 400


def test_a_retained_checkpoint_can_be_read_and_others_cannot(running: TestClient) -> None:
    for _ in range(20):
        number = get(running, f"{COUNT}?key=3")["checkpoint"]
        response = running.get(f"{COUNT}?key=3&checkpoint={number}")
        if response.status_code == 200:
            break
    assert response.json()["checkpoint"] == number
    assert response.json()["level"] == "checkpoint"
    response = running.get(f"{COUNT}?key=3&checkpoint=999999")
    assert response.status_code == 404
    assert "retains no checkpoint 999999" in response.json()["errors"][0]


@pytest.mark.parametrize("prefix", ["customer-", "customer-3", "nobody"])
def test_pages_go_on_from_their_cursor(running: TestClient, prefix: str) -> None:
    path = f"/jobs/shop/state/names/visits?prefix={prefix}"
    expected = {f"customer-{n}" for n in range(CUSTOMERS) if f"customer-{n}".startswith(prefix)}
    found: list[str] = []
    cursor = ""
    while True:
        page = get(running, f"{path}&limit=3{cursor}")
        found += [entry["key"] for entry in page["entries"]]
        if page["next"] is None:
            break
        cursor = f"&after={page['next']}"
    assert sorted(found) == sorted(expected)


def test_the_states_of_a_job_are_listed_with_what_can_be_looked_up(running: TestClient) -> None:
    listed = get(running, "/jobs/shop/state")["operators"]
    assert [operator["uid"] for operator in listed] == ["orders", "names"]
    states = {s["name"]: (s["queryable"], s["ttl"]) for s in listed[0]["states"]}
    assert states == {
        "count": (True, -1),
        "by parity": (True, -1),
        "recent": (True, 3_600_000),
        "secret": (False, -1),
    }
    assert get(running, "/jobs/shop/state/orders")["operators"] == listed[:1]


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("/jobs/none/state/orders/count?key=3", 404, "Job none not found"),
        ("/jobs/shop/state/none/count?key=3", 404, "no operator with the uid"),
        ("/jobs/shop/state/orders/none?key=3", 404, "no keyed state"),
        ("/jobs/shop/state/orders/secret?key=3", 403, "set_queryable"),
        ("/jobs/shop/state/orders/secret", 403, "set_queryable"),
        (f"{COUNT}?key=three", 400, "no key of type"),
        (f"{COUNT}?key=%5B1%5D", 400, "no key of type"),
        (f"{COUNT}?key=3&json=perhaps", 400, "neither true nor false"),
        (f"{COUNT}?key=3&json=true&key=x", 400, "no key of type"),
        (f"{COUNT}?key=3&map_key=3", 400, "only map states"),
        (f"{COUNT}?map_key=3", 400, "needs key="),
        (f"{COUNT}?key=3&prefix=3", 400, "exclude each other"),
        (f"{COUNT}?prefix=c", 400, "no key of type"),
        (f"{COUNT}?after=%F0%9F%92%A5", 400, "is no cursor"),
        (f"{COUNT}?after=x", 400, "is no cursor"),
        (f"{COUNT}?limit=0", 400, "limit=0"),
        (f"{COUNT}?limit=1001", 400, "1000 at most"),
        (f"{COUNT}?{'&'.join(['key=3'] * 101)}", 400, "At most 100 keys"),
        (f"{COUNT}?key=3&level=dirty", 400, "level=dirty"),
        (f"{COUNT}?key=3&level=latest&checkpoint=1", 400, "exclude each other"),
        (f"{COUNT}?key=3&level=checkpoint", 400, "needs checkpoint=N"),
        (f"{COUNT}?key=3&checkpoint=-1", 400, "no whole number"),
        (f"{COUNT}?key=3&max_staleness=soon", 400, "a duration such as"),
        (f"{COUNT}?key=3&max_staleness=0ms", 412, "at most 0 s are accepted"),
        ("/jobs/shop/state?key=3&level=latest", 400, "needs an operator and a state"),
    ],
)
def test_what_cannot_be_answered_says_why(
    running: TestClient, path: str, status: int, reason: str
) -> None:
    response = running.get(path)
    assert response.status_code == status, response.text
    assert reason in response.json()["errors"][0]


def test_fresh_enough_state_is_returned(running: TestClient) -> None:
    assert running.get(f"{COUNT}?key=3&max_staleness=1min").status_code == 200


def test_many_readers_at_once_see_whole_checkpoints(running: TestClient) -> None:
    torn: list[Any] = []

    def read() -> None:
        last = 0
        for _ in range(30):
            answer = get(running, "/jobs/shop/state/orders/by-parity?key=3&key=4")
            pairs = [
                {entry["map_key"]: entry["value"] for entry in key["entries"]}
                for key in answer["keys"]
            ]
            # Customer 4 orders after 3, and the batches end with any of them.
            apart = abs(max(pairs[0].values()) - max(pairs[1].values()))
            if answer["checkpoint"] < last or apart > CUSTOMERS:
                torn.append(answer)
            last = answer["checkpoint"]

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torn == []


def test_state_of_a_job_that_is_over_is_still_there(tmp_path: Path) -> None:
    retained = {
        "execution__checkpointing__externalized_checkpoint_retention": "RETAIN_ON_CANCELLATION"
    }
    job = start_shop(tmp_path, **retained)
    with server(tmp_path) as client:
        eventually(lambda: client.get(f"{COUNT}?key=3").status_code == 200)
        end(job)
        assert get(client, f"{COUNT}?key=3")["level"] == "committed"
        response = client.get(f"{COUNT}?key=3&level=latest")
        assert response.status_code == 503
        assert "No driver is running job" in response.json()["errors"][0]
    with server(tmp_path) as client:
        assert get(client, f"{COUNT}?key=3")["keys"][0]["entries"]


def test_a_job_can_make_all_of_its_states_queryable(tmp_path: Path) -> None:
    job = start_shop(tmp_path, penstock__queryable_state__enabled="true")
    with server(tmp_path) as client:
        eventually(lambda: client.get("/jobs/shop/state/orders/secret?key=3").status_code == 200)
        latest = client.get("/jobs/shop/state/orders/secret?key=3&level=latest")
        assert latest.status_code == 200
    end(job)


def test_a_job_without_a_checkpoint_has_no_state_yet(tmp_path: Path) -> None:
    job = start_shop(tmp_path, execution__checkpointing__interval="1 h")
    with server(tmp_path) as client:
        response = client.get(f"{COUNT}?key=3")
        assert response.status_code == 404
        assert "no completed checkpoint yet" in response.json()["errors"][0]
        eventually(lambda: client.get(f"{COUNT}?key=3&level=latest").status_code == 200)
    end(job)


def test_a_reader_may_look_up_state_and_nobody_else(tmp_path: Path) -> None:
    job = start_shop(tmp_path / "checkpoints")
    with server(tmp_path / "checkpoints", tokens=read_tokens(tokens_file(tmp_path))) as client:
        for token in (READER, OPERATOR):
            client.headers["authorization"] = f"Bearer {token}"
            eventually(lambda: client.get(f"{COUNT}?key=3").is_success)
        del client.headers["authorization"]
        for path in (f"{COUNT}?key=3", "/jobs/shop/state", "/jobs/shop/state?key=3"):
            assert client.get(path).status_code == 401
    end(job)


def test_what_a_killed_server_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    running = Scratch(tmp_path)
    kept = running.new().parent
    abandoned = tmp_path / "penstock-serve-state-abandoned"
    (abandoned / "1").mkdir(parents=True)
    (abandoned / "lock").touch()
    (abandoned / "1" / "file").touch()
    other = tmp_path / "else"
    other.mkdir()
    (tmp_path / "penstock-serve-state-link").symlink_to(other)
    remove_abandoned(tmp_path)
    assert not abandoned.exists()
    assert kept.exists()
    assert other.exists()
    assert kept.stat().st_mode & 0o777 == 0o700
    running.close()
    assert not kept.exists()


def test_a_server_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    job = start_shop(tmp_path / "checkpoints")
    with server(tmp_path / "checkpoints") as client:
        eventually(lambda: client.get(f"{COUNT}?key=3").status_code == 200)
        assert [p.name for p in scratch.iterdir() if "serve-state" in p.name]
    assert not [p.name for p in scratch.iterdir() if "serve-state" in p.name]
    end(job)
