"""`penstock state diff`: what changed in the keyed state between two snapshots."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from penstock.checkpoint.storage.journal import Journal
from penstock.cli.commands.state.selection import Selection
from penstock.cli.exit_codes import ExitCode
from penstock.cli.options import directory_options, json_option
from penstock.cli.output import clock, echo, table
from penstock.cli.progress import Progress
from penstock.client.state_changes import (
    ChangeFilter,
    ComparedSnapshot,
    OperatorChanges,
    SnapshotChanges,
    StateChanges,
    compare,
)
from penstock.common.storage_url import Location
from penstock.common.text.tolerant_json import encode_json

_NUMBERS = ("ADDED", "REMOVED", "CHANGED")
_MARKS = {"added": "+", "removed": "-", "changed": "~"}
_NOT_KEYS = ("change", "before", "after", "expires_before", "expires_after")


@click.command()
@click.argument("before", metavar="PATH|JOB")
@click.argument("after", metavar="[PATH|JOB]", required=False)
@click.option("--from", "first", type=int, metavar="ID", help="The earlier checkpoint of JOB.")
@click.option("--to", "second", type=int, metavar="ID", help="The later checkpoint of JOB.")
@click.option("--operator", metavar="UID", help="Only this operator, by its uid or its name.")
@click.option("--state", metavar="NAME", help="Only this state.")
@click.option("--keys", is_flag=True, help="Also the keys, with their values before and after.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="How many keys of each state.",
)
@click.option(
    "--exit-code", is_flag=True, help="Exit with 4 if something changed, with 0 if nothing did."
)
@directory_options
@json_option
def diff(
    before: str,
    after: str | None,
    first: int | None,
    second: int | None,
    operator: str | None,
    state: str | None,
    keys: bool,
    limit: int,
    exit_code: bool,
    defines: tuple[str, ...],
    config: Path | None,
    directory: Location | None,
    as_json: bool,
) -> None:
    """Show what changed in keyed state between two checkpoints or savepoints.

    Either two of them are given, by their paths, or one JOB: then they are its checkpoints --from
    and --to, by default the two newest. Files that both share are not read.
    """
    one = Selection(before, defines, config, directory)
    if after is not None:
        if first is not None or second is not None:
            message = "--from and --to choose checkpoints of one JOB; two snapshots are given"
            raise click.UsageError(message)
        other = Selection(after, defines, config, directory)
    else:
        first, second = _checkpoints(one, first, second)
        other = one
    wanted = ChangeFilter(operator, state, limit if keys else 0)
    with ExitStack() as stack:
        older = stack.enter_context(one.reading(first))
        newer = stack.enter_context(other.reading(second))
        progress = stack.enter_context(Progress())
        found = compare(older, newer, wanted, progress.show)
    echo(found, as_json, lambda: _text(found))
    sys.exit(ExitCode.DIFFERENT if exit_code and found.total else ExitCode.DONE)


def _checkpoints(job: Selection, first: int | None, second: int | None) -> tuple[int, int]:
    """Return the ids of the checkpoints to compare: by default the two newest of a job."""
    if first is not None and second is not None:
        return first, second
    directory = job.job().directory
    completed = Journal(directory.storage, directory.key).state().completed
    known = [entry.checkpoint for entry in completed if not entry.savepoint]
    second = known[-1] if second is None and known else second
    if first is None:
        first = next((number for number in reversed(known) if number != second), None)
    if first is None or second is None:
        message = (
            f"Job {directory.key} retains {len(known) or 'no'} checkpoint, and two are compared: "
            "give the path of another snapshot, or let the job retain more "
            "(execution.checkpointing.num-retained)."
        )
        raise click.ClickException(message)
    return first, second


def _text(found: SnapshotChanges) -> str:
    lines = [f"from {_side(found.before)}", f"to   {_side(found.after)}"]
    unchanged = [operator.name for operator in found.operators if _is_unchanged(operator)]
    for operator in found.operators:
        if not _is_unchanged(operator):
            lines += ["", *_operator(operator)]
    if unchanged:
        lines += ["", f"nothing changed in {', '.join(unchanged)}"]
    elif not found.operators:
        lines += ["", "no keyed state"]
    return "\n".join(lines)


def _is_unchanged(operator: OperatorChanges) -> bool:
    return operator.is_in == "both" and not any(state.total for state in operator.states)


def _side(side: ComparedSnapshot) -> str:
    return f"{side.kind} {side.checkpoint} of {side.job_id}, {clock(side.completed)}: {side.path}"


def _operator(operator: OperatorChanges) -> Iterator[str]:
    only = "" if operator.is_in == "both" else f", only in the snapshot {operator.is_in}"
    read = ""
    if operator.key_groups_read < operator.max_parallelism:
        read = (
            f", {operator.key_groups_read} of {operator.max_parallelism} key groups read: the "
            "others are in the same files"
        )
    yield f"{operator.name}  [{operator.uid}]{only}{read}"
    shown = [state for state in operator.states if state.total]
    if shown:
        yield table([_state(state) for state in shown], _NUMBERS, "  ")
    for state in shown:
        if state.keys:
            yield f"  {state.name}"
            yield from (f"    {_key(row)}" for row in state.keys)
            if len(state.keys) < state.total:
                yield f"    … and {state.total - len(state.keys):,} more (--limit)"


def _state(state: StateChanges) -> dict[str, str]:
    return {
        "STATE": state.name,
        "KIND": state.kind,
        "ADDED": f"{state.added:,}",
        "REMOVED": f"{state.removed:,}",
        "CHANGED": f"{state.changed:,}",
    }


def _key(row: dict[str, Any]) -> str:
    key = ", ".join(f"{name} {_json(row[name])}" for name in row if name not in _NOT_KEYS)
    values = [_json(row[side]) for side in ("before", "after") if side in row]
    if len(values) == 2 and values[0] == values[1]:
        values = [f"{values[0]}, only its time-to-live began again"]
    shown = f": {' -> '.join(values)}" if values else ""
    return f"{_MARKS[row['change']]} {key}{shown}"


def _json(value: object) -> str:
    return encode_json(value).decode()
