"""docs/rest.md lists every call of Flink's REST API, and the server has those it says.

``python -m tests.unit.serve.test_page`` prints the table.
"""

from __future__ import annotations

from pathlib import Path

from penstock.serve.http.calls import Endpoint
from penstock.serve.rest.catalogue import OWN, SUPPORTED, UNSUPPORTED
from tests.unit.serve.serve_fixtures import get, server

ROOT = Path(__file__).resolve().parents[3]
FLINK_CALLS = Path(__file__).with_name("flink_rest_calls.txt")
"""The methods and paths in `rest_api_v1.snapshot` of Flink 2.4."""


def row(call: str, endpoints: dict[str, Endpoint]) -> str:
    endpoint = endpoints[call]
    text = endpoint.summary
    if endpoint.is_supported:
        return f"| `{call}` | yes | {text} |"
    return f"| `{call}` | no | {text.removeprefix('Not supported: ')} |"


def table() -> str:
    """Return the table of docs/rest.md."""
    endpoints = {f"{e.method} {e.path}": e for e in (*SUPPORTED, *UNSUPPORTED)}
    rows = [row(call, endpoints) for call in flink_calls()]
    return "\n".join(["| call | supported | what it does, or why not |", "|---|---|---|", *rows])


def flink_calls() -> list[str]:
    return FLINK_CALLS.read_text().splitlines()


def test_the_page_lists_every_call_of_flinks_api_as_the_server_has_it() -> None:
    assert table() in (ROOT / "docs" / "rest.md").read_text()


def test_the_server_knows_exactly_the_calls_of_flinks_api() -> None:
    known = [f"{e.method} {e.path}" for e in (*SUPPORTED, *UNSUPPORTED)]
    assert sorted(known) == sorted(flink_calls())
    assert len(known) == len(set(known)) == 83


def test_the_description_has_every_call_that_is_supported_and_its_page_needs_nothing_else(
    tmp_path: Path,
) -> None:
    with server(tmp_path) as client:
        description = get(client, "/openapi.json")
        page = client.get("/docs").text
    described = {(m.upper(), p) for p, methods in description["paths"].items() for m in methods}
    assert described == {(e.method, e.template) for e in (*SUPPORTED, *OWN)}
    for _, path in described:
        assert f" {path}</code>" in page
    for external in ("<script", "src=", "http://", "https://", "<link"):
        assert external not in page
    body = description["paths"]["/jobs/{jobid}/stop"]["post"]["requestBody"]
    name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    assert "targetDirectory" in description["components"]["schemas"][name]["properties"]


if __name__ == "__main__":
    print(table())
