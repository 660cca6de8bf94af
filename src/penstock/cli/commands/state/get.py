"""`penstock state get`: what a state has of a key, from files alone or from the running job."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import click
import msgspec

from penstock.cli.commands.state.selection import Selection, checkpoint_option, snapshot_argument
from penstock.cli.options import json_option, timeout_option
from penstock.cli.output import clock, duration, echo, table
from penstock.cli.waiting import driver_of
from penstock.recovery.control import ReadState
from penstock.snapshots.look_up import OpenOperator
from penstock.snapshots.queries.operator_queries import OperatorQueries
from penstock.snapshots.queries.query import (
    DEFAULT_ENTRIES,
    MOST_ENTRIES,
    MOST_KEYS,
    StateAnswer,
    StateQuery,
)
from penstock.snapshots.stored_snapshot import StoredSnapshot, opened_part


@click.command("get")
@snapshot_argument
@click.option("--operator", required=True, metavar="UID", help="Uid or name of the operator.")
@click.option("--state", required=True, metavar="NAME", help="Its name, or its queryable name.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="JSON; a text needs no quotes.")
@click.option("--map-key", metavar="KEY", help="Only this entry of a map.")
@click.option("--prefix", metavar="TEXT", help="Keys that begin so, instead of --key.")
@click.option("--after", metavar="CURSOR", help="Continue after the page that ended here.")
@click.option(
    "--limit",
    type=click.IntRange(1, MOST_ENTRIES),
    default=DEFAULT_ENTRIES,
    show_default=True,
    help="Entries, for each key.",
)
@click.option("--expired", is_flag=True, help="Also values whose time-to-live is over.")
@click.option("--latest", is_flag=True, help="After the last micro-batch: asks the driver of JOB.")
@checkpoint_option
@timeout_option
@json_option
def get(
    selection: Selection,
    keys: tuple[str, ...],
    checkpoint: int | None,
    latest: bool,
    timeout: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Look up keys in a state of PATH or JOB; without --key, a page of all keys.

    States need not be queryable: who may read the files may read them.
    """
    if len(keys) > MOST_KEYS:
        message = f"at most {MOST_KEYS} keys"
        raise click.BadParameter(message, param_hint="--key")
    if keys and options["prefix"] is not None:
        message = "--prefix is for scans, without --key"
        raise click.UsageError(message)
    if latest and checkpoint is not None:
        message = "--latest and --checkpoint exclude each other"
        raise click.UsageError(message)
    with_expired = options.pop("expired")
    query = StateQuery(keys=list(keys), with_expired=with_expired, only_queryable=False, **options)
    if latest:
        facts = _latest(selection, query, timeout)
    else:
        with selection.reading(checkpoint) as snapshot:
            facts = _stored(snapshot, query)
    echo(facts, as_json, lambda: _text(facts))


def _stored(snapshot: StoredSnapshot, query: StateQuery) -> dict[str, Any]:
    operator = snapshot.operator(query.operator)
    with contextlib.ExitStack() as stack:
        parts = snapshot.parts(operator)
        opened = [stack.enter_context(opened_part(part)) for part in parts]
        states = snapshot.keyed_states(operator, opened)
        found = OpenOperator(opened, [part.key_groups for part in parts])
        answer = OperatorQueries(found, states, operator.name).answer(query, time.time())
    metadata = snapshot.metadata
    return {
        "level": "checkpoint",
        "checkpoint": metadata.checkpoint,
        "time": metadata.triggered,
        "age": max(0.0, time.time() - metadata.triggered),
        **_fields(answer),
    }


def _latest(selection: Selection, query: StateQuery, timeout: float | None) -> dict[str, Any]:
    with driver_of(selection.job(), timeout) as driver:
        answer = driver.request(ReadState(query))
    if not answer.ok or answer.state is None or answer.state.answer is None:
        raise click.ClickException(answer.message)
    state = answer.state
    return {
        "level": "latest",
        "checkpoint": state.checkpoint,
        "micro_batch": state.batch,
        "time": state.read,
        "age": max(0.0, time.time() - state.read),
        **_fields(answer.state.answer),
    }


def _fields(answer: StateAnswer) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(answer)
    return found


def _text(facts: dict[str, Any]) -> str:
    what = f"checkpoint {facts['checkpoint']}"
    if facts["level"] == "latest":
        what = f"after micro-batch {facts['micro_batch']}"
    lines = [
        f"{facts['state']} of {facts['operator']}: {facts['kind']} of {facts['type']}",
        f"{what}, as of {clock(facts['time'])} ({duration(facts['age'])} ago)",
        "",
    ]
    pages = facts.get("keys")
    if pages is None:
        pages = [{"key": None, "entries": facts["entries"], "next": facts.get("next")}]
    entries = [entry for page in pages for entry in page["entries"]]
    if entries:
        lines.append(table([_row(entry) for entry in entries], ()))
    lines += [f"no entry: {_shown(page['key'])}" for page in pages if not page["entries"]]
    lines += [f"more: --after {page['next']}" for page in pages if page.get("next")]
    return "\n".join(lines)


def _row(entry: dict[str, Any]) -> dict[str, str]:
    return {name.upper().replace("_", " "): _shown(value) for name, value in entry.items()}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
