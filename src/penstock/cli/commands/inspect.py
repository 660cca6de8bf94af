"""`penstock checkpoint inspect`: the contents of a checkpoint or savepoint, and their checks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import click

from penstock.cli.exit_codes import ExitCode
from penstock.cli.options import (
    as_path,
    json_option,
    reached_with,
    settings_of,
    settings_options,
)
from penstock.cli.output import clock, duration, echo, size, table
from penstock.client.snapshot_facts import (
    METADATA,
    InFlightFacts,
    Inspection,
    OperatorFacts,
    inspect,
)
from penstock.common.storage_url import Location
from penstock.errors.base import plural
from penstock.storage.storage_options import storage_options
from penstock.storage.storages import storage_at

_HEADS = ("STATE", "KIND", "TYPE", "SUBTASK", "KEY GROUPS", "ENTRIES", "SIZE")
_MOST_POSITIONS = 8
_NUMBERS = ("SUBTASK", "ENTRIES", "SIZE")


@click.command("inspect")
@click.argument("path", callback=as_path)
@click.option(
    "--metadata-only", is_flag=True, help="Read only the metadata: no checksums, no state names."
)
@settings_options
@json_option
def inspect_snapshot(
    path: Location,
    metadata_only: bool,
    defines: tuple[str, ...],
    config: Path | None,
    as_json: bool,
) -> None:
    """Show the contents of the checkpoint or savepoint at PATH, and verify all of its files.

    PATH is its directory, or the _metadata in it, in a file system or a store. The exit code is 1
    if a file is damaged.
    """
    path = reached_with(storage_options(settings_of(defines, config)), path)
    try:
        found = inspect(path, with_files=not metadata_only)
    except (FileNotFoundError, NotADirectoryError):
        message = f"{path} is not a checkpoint or savepoint: it has no _metadata"
        raise click.BadParameter(message, param_hint="PATH") from None
    directory = path.parent if path.name == METADATA else path
    if found.damage and not storage_at(directory).exists(METADATA):
        message = f"{path} was deleted while it was read: its job has completed a newer one"
        raise click.ClickException(message)
    echo(found, as_json, lambda: _text(found))
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
    lines += ["", *_summary(found)]
    return "\n".join(lines)


def _operator(operator: OperatorFacts) -> list[str]:
    lines = [
        f"{operator.name}  [{operator.uid}]",
        f"  {operator.kind}, parallelism {operator.parallelism} of at most "
        f"{operator.max_parallelism}" + (", its input has ended" if operator.ended else ""),
    ]
    if operator.positions is not None:
        lines += _positions(operator, operator.positions)
    if operator.committables is not None:
        lines.append(f"  to commit  {operator.committables}")
    if operator.backend is not None:
        lines.append(f"  backend    {operator.backend}, keys of type {operator.key_type}")
    lines += [f"  in flight  {_in_flight(channel)}" for channel in operator.in_flight]
    rows = _state_rows(operator)
    if rows:
        lines.append(table(rows, _NUMBERS, indent="  "))
    return lines


def _positions(operator: OperatorFacts, positions: Mapping[str, int]) -> list[str]:
    """Return the positions of a source; of many splits, how many there are in which state."""
    end = ", finished" if operator.finished else ""
    unfinished = {split: at for split, at in sorted(positions.items()) if at >= 0}
    begun = [f"{split}: {at}" for split, at in unfinished.items() if at > 0]
    if len(unfinished) <= _MOST_POSITIONS:
        shown = ", ".join(f"{split}: {at}" for split, at in unfinished.items())
        summary, more = [shown] if shown else [], []
    else:
        waiting = len(unfinished) - len(begun)
        summary = [f"{len(unfinished):,} splits: {waiting:,} not begun, {len(begun):,} begun"]
        more = [f"             {one}" for one in begun[:_MOST_POSITIONS]]
        if len(begun) > _MOST_POSITIONS:
            more.append("             … (all with --json)")
    if operator.finished_files:
        summary.append(f"{operator.finished_files:,} finished files")
    return [f"  positions  {', '.join(summary) or 'none'}{end}", *more]


def _in_flight(channel: InFlightFacts) -> str:
    return (
        f"input {channel.input} from {channel.producer_name}: {channel.start} to {channel.end} of "
        f"attempt {channel.attempt}, {channel.records:,} records, {size(channel.bytes)}"
    )


def _state_rows(operator: OperatorFacts) -> list[dict[str, str]]:
    rows: list[tuple[str, ...]] = []
    for subtask in operator.subtasks:
        number = str(subtask.subtask)
        groups = f"{subtask.first_key_group}-{subtask.stop_key_group - 1}"
        for state in subtask.states:
            kind = state.kind if state.ttl_ms is None else f"{state.kind}, ttl {state.ttl_ms} ms"
            entries = str(state.entries), size(state.bytes)
            rows.append((state.name, kind, state.type, number, groups, *entries))
        if subtask.files and not subtask.states:
            rows.append(("?", "-", "-", number, groups, "-", size(subtask.bytes)))
        for one in subtask.lists:
            kind, _, of_type = one.declared.partition(" of ")
            rows.append((one.name, kind, of_type, number, "-", str(one.elements), size(one.bytes)))
    rows.sort(key=lambda row: (row[0], int(row[3])))
    return [dict(zip(_HEADS, row, strict=True)) for row in rows]


def _summary(found: Inspection) -> list[str]:
    metadata = f"metadata of {size(found.metadata_bytes)}"
    files = f"{plural(found.files, 'file')} of {size(found.bytes)}"
    if not found.is_verified:
        return [f"{metadata}: its checksum is correct; {files}: not read"]
    if not found.damage:
        return [f"{metadata} and {files}: all checksums are correct"]
    return [
        f"{metadata}: its checksum is correct; {files}, of which damaged:",
        *(f"  {damage.path}: {damage.reason}" for damage in found.damage),
    ]
