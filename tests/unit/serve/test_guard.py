from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from penstock.errors import TokensFileError
from penstock.serve.application import ENDPOINTS
from penstock.serve.http.guard import host_name
from penstock.serve.http.tokens import Role, Tokens, read_tokens
from tests.unit.cli.job_fixtures import job_directory, penstock
from tests.unit.serve.serve_fixtures import server

READER, OPERATOR = "reader-0123456789abcdef", "operator-0123456789abcdef"


def tokens_file(directory: Path, text: str | None = None, mode: int = 0o600) -> Path:
    path = directory / "tokens"
    path.write_text(text or f"# who\nreader {READER}\n\noperator {OPERATOR}\n")
    path.chmod(mode)
    return path


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    job_directory(tmp_path / "checkpoints", "count")
    with server(tmp_path / "checkpoints") as client:
        yield client


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[TestClient]:
    job_directory(tmp_path / "checkpoints", "count")
    with server(tmp_path / "checkpoints", tokens=read_tokens(tokens_file(tmp_path))) as client:
        yield client


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("localhost:8081", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:9", 200),
        ("[::1]:8081", 200),
        ("10.1.2.3", 200),
        ("evil.example", 403),
        ("localhost.evil.example:8081", 403),
        ("localhost:x", 403),
        ("a@localhost", 403),
        ("localhost/..", 403),
        ("", 403),
    ],
)
def test_only_the_servers_own_names_are_answered(client: TestClient, host: str, code: int) -> None:
    response = client.get("/overview", headers={"host": host})
    assert response.status_code == code
    assert code == 200 or "errors" in response.json()


def test_other_names_can_be_allowed(tmp_path: Path) -> None:
    with server(tmp_path, allowed_hosts=("jobs.example",)) as client:
        assert client.get("/overview", headers={"host": "jobs.example"}).status_code == 200


@pytest.mark.parametrize("method", ["GET", "PATCH", "POST"])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", ""])
def test_requests_of_other_sites_pages_are_refused(
    client: TestClient, method: str, origin: str
) -> None:
    headers = {"origin": origin, "content-type": "application/json"}
    response = client.request(method, "/jobs/count", headers=headers)
    assert response.status_code == 403
    assert "access-control-allow-origin" not in response.headers


def test_a_browser_needs_json_or_a_header_of_its_own_to_change_something(
    client: TestClient,
) -> None:
    same = {"origin": "http://localhost:8081", "sec-fetch-site": "same-origin"}
    form = same | {"content-type": "application/x-www-form-urlencoded"}
    path = "/jobs/count/checkpoints"
    assert client.post(path, headers=form).status_code == 403
    assert client.post(path, headers=same).status_code == 403
    cross = {"sec-fetch-site": "cross-site", "content-type": "application/json"}
    assert client.post(path, headers=cross).status_code == 403
    # The job has no driver, which is the next thing to be checked.
    assert client.post(path, headers=same, json={}).status_code == 409
    own = form | {"x-penstock-request": "1"}
    assert client.post(path, headers=own).status_code == 409
    assert client.post(path).status_code == 409  # no browser


@pytest.mark.parametrize("path", ["/overview", "/v1/events", "/metrics", "/docs", "/"])
def test_a_page_of_another_site_reads_nothing_but_may_link_here(
    client: TestClient, path: str
) -> None:
    for site in ("cross-site", "same-site"):
        other = {"sec-fetch-site": site}
        for more in (
            {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
            {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
            {"sec-fetch-mode": "cors"},
            {},
        ):
            assert client.get(path, headers=other | more).status_code == 403, more
    link = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    if "events" not in path:
        assert client.get(path, headers=link | {"sec-fetch-site": "cross-site"}).status_code == 200
        assert client.get(path, headers={"sec-fetch-site": "same-origin"}).status_code == 200
        assert client.get(path, headers={"sec-fetch-site": "none"}).status_code == 200


def test_the_head_of_an_event_stream_is_not_sent_alone(client: TestClient) -> None:
    response = client.head("/events")
    assert (response.status_code, response.headers["allow"]) == (405, "GET")


def test_an_event_stream_of_an_unknown_job_is_not_found(client: TestClient) -> None:
    response = client.get("/events?job=unknown")
    assert (response.status_code, response.json()) == (404, {"errors": ["Job unknown not found"]})


def test_the_dashboard_learns_what_its_token_may_do(guarded: TestClient, tmp_path: Path) -> None:
    for token, role, controls in ((READER, "reader", False), (OPERATOR, "operator", True)):
        headers = {"authorization": f"Bearer {token}"}
        about = guarded.get("/v1/config", headers=headers).json()
        assert (about["penstock-role"], about["penstock-needs-token"]) == (role, True)
        assert about["features"]["web-cancel"] is controls
    with server(tmp_path) as client:
        about = client.get("/v1/config").json()
    assert (about["penstock-role"], about["penstock-needs-token"]) == ("operator", False)
    assert about["penstock-version"]


def test_without_a_token_nothing_of_jobs_is_shown(guarded: TestClient) -> None:
    public = ("/", "/index.html", "/docs", "/openapi.json")
    assert [guarded.get(path).status_code for path in public] == [200] * 4
    for endpoint in ENDPOINTS:
        path = endpoint.path.replace(":jobid", "count")
        for prefix in ("", "/v1"):
            response = guarded.request(endpoint.method, prefix + path)
            assert response.status_code == 401, path
            assert response.headers["www-authenticate"] == "Bearer"
    assert guarded.get("/events").status_code == 401
    assert guarded.get("/nothing").status_code == 401


@pytest.mark.parametrize(
    ("authorization", "read", "change"),
    [
        (f"Bearer {READER}", 200, 403),
        (f"bearer {OPERATOR}", 200, 409),
        (f"Basic {OPERATOR}", 401, 401),
        (f"Bearer {OPERATOR[:-1]}", 401, 401),
        ("Bearer", 401, 401),
        (OPERATOR, 401, 401),
    ],
)
def test_a_reader_looks_and_an_operator_controls(
    guarded: TestClient, authorization: str, read: int, change: int
) -> None:
    headers = {"authorization": authorization}
    assert guarded.get("/v1/jobs/count", headers=headers).status_code == read
    assert guarded.patch("/v1/jobs/count", headers=headers).status_code == change


def test_tokens_are_not_kept_or_shown(tmp_path: Path) -> None:
    tokens = read_tokens(tokens_file(tmp_path))
    assert READER not in repr(tokens)
    assert READER not in repr(tokens.digests)
    assert [tokens.role(f"Bearer {t}") for t in (READER, OPERATOR)] == [Role.READER, Role.OPERATOR]
    assert Tokens(()).role("Bearer ") is Role.NOBODY


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        (f"operator {OPERATOR}", 0o644, "others may read or write it (mode 0644)"),
        ("operator short", 0o600, "the token in line 1 is too short"),
        (OPERATOR, 0o600, "line 1 is not a role and a token"),
        (f"# nothing\nking {OPERATOR}", 0o600, "line 2 is not a role and a token"),
        ("# nothing", 0o600, "it has no token"),
    ],
)
def test_a_tokens_file_that_is_not_safe_is_refused(
    tmp_path: Path, text: str, mode: int, reason: str
) -> None:
    with pytest.raises(TokensFileError) as error:
        read_tokens(tokens_file(tmp_path, text, mode))
    assert reason in str(error.value)
    assert OPERATOR not in str(error.value)


def test_a_server_for_others_needs_tokens(tmp_path: Path) -> None:
    result = penstock("serve", "--dir", tmp_path, "--host", "0.0.0.0")
    assert result.exit_code == 2
    assert "penstock.serve.tokens-file" in result.stderr


def test_a_large_body_is_refused_however_it_is_sent(client: TestClient) -> None:
    path = "/jobs/count/savepoints"
    assert client.post(path, content=b"x" * (1 << 20)).status_code == 400
    assert client.post(path, content=b"x" * ((1 << 20) + 1)).status_code == 413

    def pieces() -> Iterator[bytes]:
        for _ in range(20):
            yield b"x" * 100_000

    response = client.post(path, content=pieces())
    assert (response.status_code, "errors" in response.json()) == (413, True)


@pytest.mark.parametrize("length", ["-1", "x", "1" * 30])
def test_a_malformed_length_is_refused(client: TestClient, length: str) -> None:
    response = client.post("/jobs/count/savepoints", headers={"content-length": length})
    assert response.status_code in (400, 413)


@pytest.mark.parametrize(
    "id_",
    [
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "a" * 5000,
        "%00",
        "%ff",
        "count%0a",
        "*",
        "💥",
        "-",
    ],
)
def test_an_id_never_becomes_a_path(client: TestClient, tmp_path: Path, id_: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    for path in (
        f"/jobs/{id_}/status",
        f"/jobs/{id_}/checkpoints/config",
        f"/jobs/count/vertices/{id_}/metrics",
        f"/jobs/count/savepoints/{id_}",
        f"/jobs/count/checkpoints/details/{id_}",
        f"/taskmanagers/{id_}/metrics",
        f"/events?job={id_}x%0d%0aevent: y",
        f"/{id_}",
    ):
        response = client.get(path)
        assert response.status_code in (400, 404), path
        assert response.json()["errors"]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("method", "path"),
    [("DELETE", "/jobs"), ("POST", "/overview"), ("PUT", "/jobs/count"), ("TRACE", "/config")],
)
def test_another_method_is_not_allowed(client: TestClient, method: str, path: str) -> None:
    response = client.request(method, path)
    assert (response.status_code, "errors" in response.json()) == (405, True)


def test_calls_without_a_meaning_say_why(client: TestClient) -> None:
    response = client.get("/v1/datasets")
    assert response.status_code == 501
    assert response.json()["errors"][0].startswith("GET /datasets is not supported: nothing caches")


def test_answers_cannot_be_framed_sniffed_or_shared(client: TestClient) -> None:
    for path in ("/overview", "/", "/nothing"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "default-src 'self'" in headers["content-security-policy"]
        assert not any(name.startswith("access-control") for name in headers)
        assert "server" not in headers


@pytest.mark.parametrize("host", ["[::1", "a:b:c", "localhost:99999", "x:"])
def test_a_malformed_host_has_no_name(host: str) -> None:
    assert host_name(host) is None


def test_the_command_says_what_to_install_without_the_extra(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from penstock.cli.main import main; main(['serve', '--dir', '.'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "pip install 'penstock[serve]'" in done.stderr
