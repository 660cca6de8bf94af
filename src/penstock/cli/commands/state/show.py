"""`penstock state show`: the sizes of states, and how they are spread over key groups."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click
import msgspec

from penstock.cli.commands.state.selection import (
    Selection,
    checkpoint_option,
    snapshot_argument,
)
from penstock.cli.exit_codes import ExitCode
from penstock.cli.options import json_option
from penstock.cli.output import clock, duration, echo, size, table
from penstock.cli.progress import Progress
from penstock.client.snapshot_facts import Damage, inspect
from penstock.client.state_sizes import (
    KeyedStateSize,
    ListSize,
    OperatorSize,
    SnapshotSizes,
    sizes_of,
)
from penstock.errors.base import plural

_COLUMNS = 64
_BLOCKS = "▁▂▃▄▅▆▇█"
_NUMBERS = ("ENTRIES", "SIZE", "SKEW", "LARGEST GROUP")
_HOT = 4
"""A key group with this many times an even share is named."""


class ShownState(msgspec.Struct, frozen=True):
    """The sizes of a snapshot, and the files of it that are damaged."""

    snapshot: SnapshotSizes
    damage: list[Damage]


@click.command()
@snapshot_argument
@checkpoint_option
@json_option
def show(selection: Selection, checkpoint: int | None, as_json: bool) -> None:
    """Show how large the states of a checkpoint or savepoint are, by operator and key group.

    All files are read and verified. The exit code is 1 if one is damaged.
    """
    with selection.reading(checkpoint) as snapshot, Progress() as progress:
        found = inspect(snapshot.directory, by_key_group=True, on_part=progress.show)
    shown = ShownState(sizes_of(found), found.damage)
    echo(shown, as_json, lambda: _text(shown))
    sys.exit(ExitCode.FAILED if found.damage else ExitCode.DONE)


def _text(shown: ShownState) -> str:
    found = shown.snapshot
    lines = [
        (
            f"{found.kind} {found.checkpoint} of job {found.job_name!r} ({found.job_id}), "
            f"completed {clock(found.completed)}, {plural(found.files, 'file')} of "
            f"{size(found.bytes)}"
        ),
        found.path,
    ]
    with_state = [o for o in found.operators if o.states or o.lists or o.bytes]
    for operator in sorted(with_state, key=lambda o: -o.bytes):
        lines += ["", *_operator(operator)]
    others = [_other(operator) for operator in found.operators if operator not in with_state]
    if others:
        lines += ["", "without keyed or operator state", *(f"  {line}" for line in others)]
    if shown.damage:
        lines += ["", "damaged files, of which nothing is shown:"]
        lines += [f"  {damage.path}: {damage.reason}" for damage in shown.damage]
    return "\n".join(lines)


def _operator(operator: OperatorSize) -> Iterator[str]:
    yield f"{operator.name}  [{operator.uid}]"
    if operator.bytes:
        facts = [
            f"{size(operator.bytes)} of files",
            f"{plural(operator.parallelism, 'subtask')} of at most {operator.max_parallelism}",
            operator.backend or "",
            f"key {operator.key_type or 'without a type'}",
        ]
        if operator.skew is not None:
            facts.append(f"skew over subtasks {operator.skew:.2f}")
        yield "  " + ", ".join(filter(None, facts))
    if operator.states:
        rows = [_state(state, operator) for state in operator.states]
        yield table(rows, _NUMBERS, "  ")
    if operator.lists:
        yield table([_list(a_list) for a_list in operator.lists], ("ELEMENTS", "SIZE"), "  ")
    if operator.key_groups:
        yield from (f"  {line}" for line in histogram(operator.key_groups))


def _state(state: KeyedStateSize, operator: OperatorSize) -> dict[str, str]:
    largest = "-"
    if state.key_groups and state.bytes:
        most = max(state.key_groups)
        largest = f"{state.key_groups.index(most)} ({most / state.bytes:.0%})"
    return {
        "STATE": state.name,
        "KIND": state.kind,
        "TYPE": state.type or "-",
        "TTL": "-" if state.ttl_ms is None else duration(state.ttl_ms / 1000),
        "ENTRIES": f"{state.entries:,}",
        "SIZE": size(state.bytes),
        "SKEW": "-" if state.skew is None else f"{state.skew:.2f}",
        "LARGEST GROUP": largest,
    }


def _list(found: ListSize) -> dict[str, str]:
    return {
        "OPERATOR STATE": found.name,
        "DECLARED": found.declared,
        "ELEMENTS": f"{found.elements:,}",
        "SIZE": size(found.bytes),
    }


def _other(operator: OperatorSize) -> str:
    facts = [plural(operator.splits, "split")] if operator.splits else []
    if operator.committables:
        facts.append(plural(operator.committables, "pending committable"))
    if operator.in_flight_records:
        records, flight = operator.in_flight_records, size(operator.in_flight_bytes)
        facts.append(f"{plural(records, 'record')} in flight, {flight}")
    return f"{operator.name}  [{operator.uid}]" + (f": {', '.join(facts)}" if facts else "")


def histogram(groups: list[int]) -> Iterator[str]:
    """Yield a line of blocks for sizes by key group, and a line that says what it shows."""
    width = -(-len(groups) // _COLUMNS)
    cells = [sum(groups[first : first + width]) for first in range(0, len(groups), width)]
    highest, total, most = max(cells), sum(groups), max(groups)
    if not highest:
        return
    top = len(_BLOCKS) - 1
    blocks = "".join(_BLOCKS[-(-cell * top // highest)] if cell else " " for cell in cells)
    yield f"|{blocks}|"
    each = "" if width == 1 else f", {width} per column"
    filled = sum(1 for group in groups if group)
    hot = most * filled / total
    factor = f", {hot:.1f} times the mean of the {filled} with state" if hot >= _HOT else ""
    yield (
        f"key groups 0-{len(groups) - 1}{each}; the largest is {groups.index(most)} with "
        f"{size(most)}, {most / total:.0%}{factor}"
    )
