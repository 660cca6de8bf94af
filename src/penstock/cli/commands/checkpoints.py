"""`penstock checkpoints`: the statistics that Flink's web UI shows for checkpoints."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import click
import msgspec

from penstock.checkpoint.barriers.alignment import BarrierHandling
from penstock.checkpoint.history import (
    CheckpointStats,
    CheckpointStatus,
    ExceptionRecord,
    History,
    Recovery,
)
from penstock.checkpoint.storage.job_dir import JobDir, PlannedStep
from penstock.cli.options import SelectedJob, job_argument, json_option
from penstock.cli.output import clock, duration, echo, size, table, warn_unreadable
from penstock.client.job_overview import (
    JobOverview,
    ShownCheckpoint,
    is_savepoint,
    with_ended_attempt,
)
from penstock.errors.base import plural

_EXCEPTIONS_SHOWN = 3
_TEXTS = ("STATUS", "KIND", "BARRIERS", "TRIGGER TIME", "FROM", "WHERE", "WHAT", "DISCARDED")


class JobHistory(msgspec.Struct, frozen=True):
    """The recorded history of a job, newest first."""

    job: JobOverview
    checkpoints: list[ShownCheckpoint]
    recoveries: list[Recovery]
    exceptions: list[ExceptionRecord]


@click.command()
@job_argument
@click.argument("checkpoint", type=int, required=False)
@click.option(
    "--last", type=click.IntRange(min=1), default=10, show_default=True, help="How many to show."
)
@json_option
def checkpoints(job: SelectedJob, checkpoint: int | None, last: int, as_json: bool) -> None:
    """Show the checkpoints of JOB, or all details of one CHECKPOINT."""
    history = History(job.directory.storage)
    job_now = job.overview()
    job_facts = job.directory.read_facts()
    steps = [] if job_facts is None else job_facts.plan
    if checkpoint is not None:
        found = history.checkpoint(checkpoint)
        if found is None:
            what = "a damaged record" if history.unreadable else "no record"
            message = f"Job {job.id} has {what} of checkpoint {checkpoint}."
            raise click.ClickException(message)
        record = _current(found, job_now, job.directory)
        echo(record, as_json, lambda: _one(record, steps))
        return
    facts = JobHistory(
        job_now,
        [_current(record, job_now, job.directory) for record in history.checkpoints()[::-1]],
        history.recoveries()[::-1],
        history.exceptions()[::-1],
    )
    echo(facts, as_json, lambda: _all(facts, steps, last))
    warn_unreadable(job_now.path, {*job_now.unreadable, *history.unreadable})


def _current(stored: CheckpointStats, job: JobOverview, directory: JobDir) -> ShownCheckpoint:
    """Return a record as it is now."""
    return with_ended_attempt(ShownCheckpoint.of(stored, directory), job, time.time())


# -- all checkpoints ----------------------------------------------------------------------------


def _all(facts: JobHistory, steps: list[PlannedStep], last: int) -> str:
    job, records = facts.job, facts.checkpoints
    lines = [f"job {job.name!r} ({job.id}): {job.status}, {plural(job.attempts, 'attempt')}", ""]
    if records:
        lines.append(_table([_row(record, steps) for record in records[:last]]))
        if len(records) > last:
            lines.append(f"{len(records) - last} older: --last {len(records)} shows them")
    else:
        lines.append("no checkpoints yet")
    lines += ["", *_latest(facts)]
    for failure in facts.exceptions[:_EXCEPTIONS_SHOWN]:
        step = "" if failure.step is None else f", step {failure.step!r}"
        first_line = failure.message.split("\n", 1)[0]
        lines.append(
            f"exception          {clock(failure.time)}, attempt {failure.attempt}{step}: "
            f"{first_line}"
        )
    return "\n".join(lines).rstrip()


def _table(rows: Sequence[Mapping[str, str]], indent: str = "") -> str:
    return table(rows, [head for head in rows[0] if head not in _TEXTS], indent)


def _row(record: ShownCheckpoint, steps: list[PlannedStep]) -> dict[str, str]:
    return {
        "ID": str(record.id),
        "STATUS": record.status,
        "KIND": record.kind,
        "BARRIERS": _barriers(record),
        "ACKNOWLEDGED": _acknowledged(record, steps),
        "TRIGGER TIME": clock(record.triggered),
        "END TO END": duration(record.duration_s),
        "BLOCKED": size(record.blocked_bytes),
        "IN FLIGHT": size(record.in_flight_bytes),
        "NEW SIZE": size(record.new_bytes) if _is_completed(record) else "-",
        "FULL SIZE": size(record.full_bytes) if _is_completed(record) else "-",
        "DISCARDED": ("yes" if record.discarded else "no") if _is_completed(record) else "-",
    }


def _barriers(record: ShownCheckpoint) -> str:
    try:
        return BarrierHandling(record.barriers).label
    except ValueError:
        return record.barriers  # of another version, or damaged


def _acknowledged(record: ShownCheckpoint, steps: list[PlannedStep]) -> str:
    """Return how many of the job's subtasks have acknowledged."""
    planned = {step.uid: step.parallelism for step in steps}
    uids = [operator.uid for operator in record.operators]
    # For steps that are not in the current program, only the record itself is known.
    if record.status is CheckpointStatus.COMPLETED or any(uid not in planned for uid in uids):
        count = sum(planned.get(uid, 1) for uid in uids)
        return f"{count}/{count}"
    return f"{sum(planned[uid] for uid in uids)}/{sum(planned.values())}"


def _latest(facts: JobHistory) -> list[str]:
    records = facts.checkpoints
    pending = [r for r in records if r.status is CheckpointStatus.PENDING]
    completed = next((r for r in records if _is_completed(r) and not is_savepoint(r)), None)
    failed = next((r for r in records if r.status is CheckpointStatus.FAILED), None)
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


def _is_completed(record: ShownCheckpoint) -> bool:
    return record.status is CheckpointStatus.COMPLETED


def _where(record: ShownCheckpoint) -> str:
    return f"{record.id}, {clock(record.triggered)}: {_path(record)}"


def _path(record: ShownCheckpoint) -> str:
    return f"{record.path}{', discarded' if record.discarded else ''}"


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


# -- one checkpoint -----------------------------------------------------------------------------


def _one(record: ShownCheckpoint, steps: list[PlannedStep]) -> str:
    is_pending = record.status is CheckpointStatus.PENDING
    took = f"{'has taken' if is_pending else 'took'} {duration(record.duration_s)}"
    barriers = _barriers(record)
    lines = [
        f"checkpoint {record.id}: {record.status}, {record.kind}, attempt {record.attempt}",
        f"triggered {clock(record.triggered)}, {took}, barriers {barriers}",
    ]
    if is_pending:
        lines.append(f"acknowledged by {_acknowledged(record, steps)} subtasks")
    if record.failure is not None:
        lines.append(record.failure)
    if record.path is not None:
        full, new = size(record.full_bytes), size(record.new_bytes)
        in_flight = record.in_flight_bytes
        flight = f", {size(in_flight)} in flight" if in_flight else ""
        lines += [f"{full} in all, {new} of them new{flight}", _path(record)]
    for operator in record.operators:
        if not operator.stats:
            continue  # chained to another operator, which has the statistics of both
        rows = [
            {
                "SUBTASK": str(subtask),
                "ACKNOWLEDGED": f"+{duration(max(0.0, stats.acknowledged - record.triggered))}",
                "START DELAY": duration(stats.start_delay_s),
                "ALIGNMENT": duration(stats.alignment_s),
                "SYNC": duration(stats.sync_s),
                "ASYNC": duration(stats.async_s),
                "BLOCKED": size(stats.blocked_bytes),
                "IN FLIGHT": size(stats.in_flight_bytes),
                "NEW SIZE": size(stats.new_bytes),
                "FULL SIZE": size(stats.full_bytes),
            }
            for subtask, stats in enumerate(operator.stats)
        ]
        channels = [
            {
                "INPUT": str(channel.input),
                "FROM": channel.producer_name,
                "BLOCKED": size(channel.blocked_bytes),
                "IN FLIGHT": size(channel.in_flight_bytes),
                "RECORDS IN FLIGHT": f"{channel.in_flight_records:,}",
            }
            for channel in operator.channels
        ]
        lines += ["", f"{operator.name}  [{operator.uid}]", _table(rows, "  ")]
        lines += [_table(channels, "  ")] if channels else []
    events = [
        {
            "AFTER": f"+{(line.time - record.triggered) * 1000:.0f} ms",
            "WHERE": line.stage or "coordinator",
            "WHAT": line.event.label + (f": {line.detail}" if line.detail else ""),
        }
        for line in record.events
    ]
    lines += ["", "what happened", _table(events, "  ")] if events else []
    return "\n".join(lines)
