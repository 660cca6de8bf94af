"""`penstock checkpoints`: what became of a job's checkpoints, as Flink's web page has it."""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from penstock.checkpoint.history import (
    CheckpointRecord,
    ExceptionRecord,
    History,
    OperatorRecord,
    RecordStatus,
    Recovery,
)
from penstock.checkpoint.job_dir import JobDir, PlannedStep
from penstock.cli.figures import clock, duration, size
from penstock.cli.overview import JobOverview, Status, is_savepoint, overview
from penstock.cli.settings import directory_option, echo_json, job_at, json_option
from penstock.cli.tables import table

__all__ = ["checkpoints"]

_EXCEPTIONS_SHOWN = 3
_HEADS = (
    "ID",
    "STATUS",
    "KIND",
    "BARRIERS",
    "ACKNOWLEDGED",
    "TRIGGER TIME",
    "END TO END",
    "HELD",
    "IN FLIGHT",
    "NEW SIZE",
    "FULL SIZE",
)
_TEXTS = ("STATUS", "KIND", "BARRIERS", "TRIGGER TIME")
_NUMBERS = tuple(head for head in _HEADS if head not in _TEXTS)
_SUBTASK_HEADS = (
    "SUBTASK",
    "ACKNOWLEDGED",
    "START DELAY",
    "ALIGNMENT",
    "SYNC",
    "ASYNC",
    "HELD",
    "IN FLIGHT",
    "NEW SIZE",
    "FULL SIZE",
)
_CHANNEL_HEADS = ("INPUT", "FROM", "HELD", "IN FLIGHT", "RECORDS IN FLIGHT")


class JobHistory(msgspec.Struct, frozen=True):
    """All that is remembered of a job, newest first."""

    job: JobOverview
    checkpoints: list[CheckpointRecord]
    recoveries: list[Recovery]
    exceptions: list[ExceptionRecord]


@click.command()
@click.argument("job")
@click.argument("checkpoint", type=int, required=False)
@directory_option
@click.option(
    "--last", type=click.IntRange(min=1), default=10, show_default=True, help="How many to show."
)
@json_option
def checkpoints(
    job: str,
    checkpoint: int | None,
    directory: Path | None,
    defines: tuple[str, ...],
    config: Path | None,
    last: int,
    as_json: bool,
) -> None:
    """Show what became of the checkpoints of JOB, or all about one CHECKPOINT.

    JOB is an id, a name, or the path of a job's directory.
    """
    place, given = job_at(job, defines, config, directory)
    history = History(place.storage)
    job_now = overview(place, given.heartbeat_timeout_s, time.time())
    if checkpoint is not None:
        record = history.checkpoint(checkpoint)
        if record is None:
            message = f"nothing is known of checkpoint {checkpoint} of job {place.key}"
            raise click.ClickException(message)
        record = _as_it_stands(record, job_now)
        if as_json:
            echo_json(record)
        else:
            click.echo(_one(record, _steps(place)))
        return
    facts = JobHistory(
        job_now,
        [_as_it_stands(record, job_now) for record in history.checkpoints()[::-1]],
        history.recoveries()[::-1],
        history.exceptions()[::-1],
    )
    if as_json:
        echo_json(facts)
    else:
        click.echo(_all(facts, _steps(place), last))


def _as_it_stands(record: CheckpointRecord, job: JobOverview) -> CheckpointRecord:
    """Return a record as one that failed if it is pending and nobody will ever complete it."""
    if record.status is not RecordStatus.PENDING:
        return record
    if job.status is Status.RUNNING and record.attempt == job.attempt:
        return msgspec.structs.replace(record, duration_s=max(0.0, time.time() - record.triggered))
    failure = f"attempt {record.attempt} ended before it was complete"
    return msgspec.structs.replace(record, status=RecordStatus.FAILED, failure=failure)


def _steps(place: JobDir) -> list[PlannedStep]:
    facts = place.read_facts()
    return [] if facts is None else facts.plan


# -- all checkpoints ----------------------------------------------------------------------------


def _all(facts: JobHistory, steps: list[PlannedStep], last: int) -> str:
    job, records = facts.job, facts.checkpoints
    lines = [f"job {job.name!r} ({job.id}): {job.status}, {_times(job.attempts, 'attempt')}", ""]
    if records:
        rows = [_row(record, steps) for record in records[:last]]
        lines += [table(_HEADS, rows, numbers=_NUMBERS)]
        if len(records) > last:
            lines.append(f"{len(records) - last} older ones: --last {len(records)} shows them")
    else:
        lines += ["no checkpoints yet"]
    lines += ["", *_latest(facts)]
    for failure in facts.exceptions[:_EXCEPTIONS_SHOWN]:
        step = "" if failure.step is None else f", step {failure.step!r}"
        first_line = failure.message.split("\n", 1)[0]
        lines.append(
            f"exception          {clock(failure.time)}, attempt {failure.attempt}{step}: "
            f"{first_line}"
        )
    return "\n".join(lines).rstrip()


def _row(record: CheckpointRecord, steps: list[PlannedStep]) -> tuple[str, ...]:
    completed = record.status is RecordStatus.COMPLETED
    return (
        str(record.id),
        record.status,
        record.kind,
        record.barriers,
        _acknowledged(record, steps),
        clock(record.triggered),
        duration(record.duration_s),
        size(record.bytes_held),
        size(record.in_flight_bytes),
        size(record.new_bytes) if completed else "-",
        size(record.full_bytes) if completed else "-",
    )


def _acknowledged(record: CheckpointRecord, steps: list[PlannedStep]) -> str:
    """Return how many subtasks have acknowledged, of how many the job's plan has."""
    planned = {step.uid: step.parallelism for step in steps}
    uids = [operator.uid for operator in record.operators]
    # Records of an older program are told by what they have themselves.
    if record.status is RecordStatus.COMPLETED or any(uid not in planned for uid in uids):
        count = sum(planned.get(uid, 1) for uid in uids)
        return f"{count}/{count}"
    return f"{sum(planned[uid] for uid in uids)}/{sum(planned.values())}"


def _latest(facts: JobHistory) -> list[str]:
    records = facts.checkpoints
    pending = [r for r in records if r.status is RecordStatus.PENDING]
    completed = next((r for r in records if _is_completed(r) and not is_savepoint(r)), None)
    failed = next((r for r in records if r.status is RecordStatus.FAILED), None)
    savepoint = next((r for r in records if _is_completed(r) and is_savepoint(r)), None)
    lines = [f"pending            {p.id}, {clock(p.triggered)}" for p in pending]
    if completed is not None:
        lines.append(f"latest completed   {_where(completed)}")
    if failed is not None:
        lines.append(f"latest failed      {failed.id}, {clock(failed.triggered)}: {failed.failure}")
    if savepoint is not None:
        lines.append(f"latest savepoint   {_where(savepoint)}")
    if facts.recoveries:
        lines += _restore(facts.recoveries[0])
    return lines


def _is_completed(record: CheckpointRecord) -> bool:
    return record.status is RecordStatus.COMPLETED


def _where(record: CheckpointRecord) -> str:
    return f"{record.id}, {clock(record.triggered)}: {record.path}"


def _restore(recovery: Recovery) -> list[str]:
    what = (
        "from the beginning"
        if recovery.checkpoint is None
        else f"from checkpoint {recovery.checkpoint}"
    )
    first_line = recovery.cause.split("\n", 1)[0]
    times = (
        ("detect", recovery.detect_s),
        ("redeploy", recovery.redeploy_s),
        ("load state", recovery.load_state_s),
        ("reset sources", recovery.reset_sources_s),
        ("reset sinks", recovery.reset_sinks_s),
    )
    return [
        (
            f"latest restore     attempt {recovery.attempt} {what}, {clock(recovery.time)}: "
            f"{first_line}"
        ),
        "                   " + ", ".join(f"{name} {duration(s)}" for name, s in times),
    ]


def _times(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# -- one checkpoint -----------------------------------------------------------------------------


def _one(record: CheckpointRecord, steps: list[PlannedStep]) -> str:
    is_pending = record.status is RecordStatus.PENDING
    took = f"{'has taken' if is_pending else 'took'} {duration(record.duration_s)}"
    lines = [
        f"checkpoint {record.id}: {record.status}, {record.kind}, attempt {record.attempt}",
        f"triggered {clock(record.triggered)}, {took}, barriers {record.barriers}",
    ]
    if is_pending:
        lines.append(f"acknowledged by {_acknowledged(record, steps)} subtasks")
    if record.failure is not None:
        lines.append(record.failure)
    if record.path is not None:
        full, new = size(record.full_bytes), size(record.new_bytes)
        in_flight = record.in_flight_bytes
        overtaken = f", {size(in_flight)} in flight" if in_flight else ""
        lines += [f"{full} in all, {new} of them new{overtaken}", record.path]
    for operator in record.operators:
        if not operator.stats:
            continue  # chained behind another one, and counted with it
        rows = [
            (
                str(subtask),
                f"+{duration(max(0.0, stats.acknowledged - record.triggered))}",
                duration(stats.start_delay_s),
                duration(stats.alignment_s),
                duration(stats.sync_s),
                duration(stats.async_s),
                size(stats.bytes_held),
                size(stats.in_flight_bytes),
                size(stats.new_bytes),
                size(stats.full_bytes),
            )
            for subtask, stats in enumerate(operator.stats)
        ]
        lines += [
            "",
            f"{operator.name}  [{operator.uid}]",
            table(_SUBTASK_HEADS, rows, numbers=_SUBTASK_HEADS, indent="  "),
            *_channels(operator),
        ]
    if record.story:
        lines += ["", "what happened"]
        rows_of_story = [
            (
                f"+{(line.time - record.triggered) * 1000:.0f} ms",
                line.stage or "coordinator",
                line.event.value + (f": {line.detail}" if line.detail else ""),
            )
            for line in record.story
        ]
        shown = table(("AFTER", "WHERE", "WHAT"), rows_of_story, numbers=("AFTER",), indent="  ")
        lines.append(shown)
    return "\n".join(lines)


def _channels(operator: OperatorRecord) -> list[str]:
    if not operator.channels:
        return []
    rows = [
        (
            str(channel.input),
            channel.producer_name,
            size(channel.bytes_held),
            size(channel.in_flight_bytes),
            f"{channel.in_flight_records:,}",
        )
        for channel in operator.channels
    ]
    numbers = [head for head in _CHANNEL_HEADS if head != "FROM"]
    return [table(_CHANNEL_HEADS, rows, numbers=numbers, indent="  ")]
