"""`penstock checkpoint inspect`: what a checkpoint or savepoint holds, and whether it is whole."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from penstock.cli.exit_codes import ExitCode
from penstock.cli.figures import clock, duration, size
from penstock.cli.settings import echo_json, json_option
from penstock.cli.snapshot_facts import (
    METADATA,
    InFlightFacts,
    Inspection,
    OperatorFacts,
    inspect,
)
from penstock.cli.tables import table

__all__ = ["inspect_snapshot"]

_HEADS = ("STATE", "KIND", "TYPE", "SUBTASK", "KEY GROUPS", "ENTRIES", "SIZE")


@click.command("inspect")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--metadata-only", is_flag=True, help="Read no state: no checksums, no names of states."
)
@json_option
def inspect_snapshot(path: Path, metadata_only: bool, as_json: bool) -> None:
    """Show what the checkpoint or savepoint at PATH holds, and check all of its files.

    PATH is its directory, or the _metadata in it. Ends with 1 if a file is damaged.
    """
    try:
        found = inspect(path.absolute(), with_files=not metadata_only)
    except (FileNotFoundError, NotADirectoryError):
        message = f"{path} is no checkpoint and no savepoint: it has no _metadata"
        raise click.BadParameter(message, param_hint="PATH") from None
    if found.damage and not (Path(found.path) / METADATA).exists():
        message = f"{path} was deleted while it was read: its job has a newer one"
        raise click.ClickException(message)
    if as_json:
        echo_json(found)
    else:
        click.echo(_text(found))
    sys.exit(ExitCode.FAILED if found.damage else ExitCode.DONE)


def _text(found: Inspection) -> str:
    took = duration(max(0.0, found.completed - found.triggered))
    lines = [
        (
            f"{found.kind} {found.checkpoint} of job {found.job_name!r} ({found.job_id}), "
            f"attempt {found.attempt}"
        ),
        (
            f"triggered {clock(found.triggered)}, took {took}, written by penstock "
            f"{found.penstock_version}"
        ),
        found.path,
    ]
    for operator in found.operators:
        lines += ["", *_operator(operator)]
    lines += ["", *_verdict(found)]
    return "\n".join(lines)


def _operator(operator: OperatorFacts) -> list[str]:
    lines = [
        f"{operator.name}  [{operator.uid}]",
        f"  {operator.kind}, parallelism {operator.parallelism} of at most "
        f"{operator.max_parallelism}" + (", its input has ended" if operator.ended else ""),
    ]
    if operator.positions is not None:
        positions = ", ".join(f"{split}: {at}" for split, at in sorted(operator.positions.items()))
        end = ", finished" if operator.finished else ""
        lines.append(f"  positions  {positions or 'none'}{end}")
    if operator.committables is not None:
        lines.append(f"  to commit  {operator.committables}")
    if operator.backend is not None:
        lines.append(f"  backend    {operator.backend}, keys of type {operator.key_type}")
    lines += [f"  in flight  {_in_flight(channel)}" for channel in operator.in_flight]
    rows = _state_rows(operator)
    if rows:
        shown = table(_HEADS, rows, numbers=("SUBTASK", "ENTRIES", "SIZE"), indent="  ")
        lines.append(shown)
    return lines


def _in_flight(channel: InFlightFacts) -> str:
    return (
        f"input {channel.input} from {channel.producer_name}: {channel.start} to {channel.end} of "
        f"attempt {channel.attempt}, {channel.records:,} records, {size(channel.bytes)}"
    )


def _state_rows(operator: OperatorFacts) -> list[tuple[str, ...]]:
    rows = []
    for subtask in operator.subtasks:
        groups = f"{subtask.first_key_group}-{subtask.stop_key_group - 1}"
        for state in subtask.states:
            rows.append(
                (
                    state.name,
                    state.kind if state.ttl_ms is None else f"{state.kind}, ttl {state.ttl_ms} ms",
                    state.type,
                    str(subtask.subtask),
                    groups,
                    str(state.entries),
                    size(state.bytes),
                )
            )
        if subtask.files and not subtask.states:
            rows.append(("?", "-", "-", str(subtask.subtask), groups, "-", size(subtask.bytes)))
        for one in subtask.lists:
            kind, _, of_type = one.declared.partition(" of ")
            row = (one.name, kind, of_type, str(subtask.subtask), "-")
            rows.append((*row, str(one.elements), size(one.bytes)))
    return sorted(rows, key=lambda row: (row[0], int(row[3])))


def _verdict(found: Inspection) -> list[str]:
    metadata = f"metadata of {size(found.metadata_bytes)}"
    files = f"{found.files} files of {size(found.bytes)}"
    if found.files == 1:
        files = f"1 file of {size(found.bytes)}"
    if not found.is_proven:
        return [f"{metadata}: its checksum is right; {files}: not read"]
    if not found.damage:
        return [f"{metadata} and {files}: every checksum is right"]
    return [
        f"{metadata}: its checksum is right; of {files} damaged:",
        *(f"  {damage.path}: {damage.reason}" for damage in found.damage),
    ]
