"""Describes the API in OpenAPI, and as a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import msgspec

from penstock import __version__
from penstock.serve.http.calls import Endpoint

_REF = "#/components/schemas/{name}"
_NUMBERS = ("checkpointid", "subtaskindex", "attempt")
_ERRORS = {
    "400": "The path, the query or the body cannot be used",
    "401": "A bearer token is needed",
    "403": "The token is a reader's, or the request comes from another site",
    "404": "There is no such job, vertex, checkpoint or trigger",
    "409": "The job is in a state in which this cannot be done",
    "503": "The storage cannot be read now",
}
_LIST = {"get", "agg", "jobs", "subtasks", "taskmanagers"}


def openapi(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI description of the calls that are supported."""
    found = [endpoint for endpoint in endpoints if endpoint.is_supported]
    bodies = [endpoint.body for endpoint in found if endpoint.body is not None]
    _, schemas = msgspec.json.schema_components(bodies, ref_template=_REF)
    errors = {
        "type": "object",
        "properties": {"errors": {"type": "array", "items": {"type": "string"}}},
        "required": ["errors"],
    }
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in found:
        paths.setdefault(endpoint.template, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "penstock",
            "version": __version__,
            "description": "Flink's REST API, version 1, for the jobs of a checkpoint directory.",
        },
        "servers": [{"url": "/v1"}, {"url": "/"}],
        "security": [{}, {"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Errors": errors},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def page(description: Mapping[str, Any]) -> str:
    """Return a page that shows the description of an API; it has no scripts."""
    info = description["info"]
    rows = [
        _section(path, method, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>API of {title}</title></head>\n"
        f"<body><main><h1>API of {title}</h1>\n"
        f"<p>{escape(info['description'])} Every path is there with <code>/v1</code> and without "
        "it. This page is made from <a href=openapi.json>openapi.json</a>.</p>\n"
        + "\n".join(rows)
        + "\n</main></body></html>\n"
    )


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": endpoint.summary,
        "parameters": [_in_path(name) for name in _names(endpoint)]
        + [_in_query(name) for name in endpoint.query],
        "responses": {
            str(endpoint.status): {
                "description": endpoint.summary,
                "content": {"application/json": {"schema": {}}},
            },
            **{status: _error(text) for status, text in _ERRORS.items()},
        },
    }
    if endpoint.body is not None:
        schema = {"$ref": _REF.format(name=endpoint.body.__name__)}
        described["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    if endpoint.is_change:
        described["description"] = "Needs the token of an operator, if the server has tokens."
    return described


def _names(endpoint: Endpoint) -> list[str]:
    return [name[1:].rstrip("*") for name in endpoint.path.split("/") if name.startswith(":")]


def _in_path(name: str) -> dict[str, Any]:
    schema = {"type": "integer"} if name in _NUMBERS else {"type": "string"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(name: str) -> dict[str, Any]:
    text = "names with commas between them" if name in _LIST else ""
    return {"name": name, "in": "query", "schema": {"type": "string"}, "description": text}


def _error(text: str) -> dict[str, Any]:
    schema = {"$ref": _REF.format(name="Errors")}
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _section(path: str, method: str, operation: Mapping[str, Any]) -> str:
    lines = [
        f"<section><h2><code>{method.upper()} {escape(path)}</code></h2>",
        f"<p>{escape(operation['summary'])}. {escape(operation.get('description', ''))}</p>",
    ]
    if operation["parameters"]:
        items = "".join(
            f"<li><code>{escape(p['name'])}</code> in the {p['in']} "
            f"{escape(p.get('description', ''))}</li>"
            for p in operation["parameters"]
        )
        lines.append(f"<ul>{items}</ul>")
    if "requestBody" in operation:
        reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        lines.append(f"<p>Body: <code>{escape(reference.rpartition('/')[2])}</code></p>")
    return "\n".join([*lines, "</section>"])
