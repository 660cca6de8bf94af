"""`penstock channels`: the contents of a running job's channels."""

from __future__ import annotations

import click

from penstock.cli.options import SelectedJob, job_argument, json_option, timeout_option
from penstock.cli.output import echo, size, table
from penstock.cli.waiting import driver_of
from penstock.common.channel_info import ChannelInfo
from penstock.recovery.control import Channels

_NUMBERS = ("INPUT", "MICRO-BATCHES", "RECORDS", "SIZE")
_BARRIERS_SHOWN = 3
_NONE = "The job has no channels."


@click.command()
@job_argument
@timeout_option
@json_option
def channels(job: SelectedJob, timeout: float | None, as_json: bool) -> None:
    """Show the records that wait in the channels of JOB, which must be running."""
    with driver_of(job, timeout) as driver:
        answer = driver.request(Channels())
    found = answer.channels
    if not answer.ok or found is None:
        raise click.ClickException(answer.message)
    rows = [_row(channel) for channel in found]
    echo(found, as_json, lambda: table(rows, _NUMBERS) if rows else _NONE)


def _row(channel: ChannelInfo) -> dict[str, str]:
    return {
        "CHANNEL": channel.name,
        "INPUT": str(channel.input),
        "EXCHANGE": channel.exchange,
        "MICRO-BATCHES": str(channel.micro_batches),
        "RECORDS": f"{channel.records:,}",
        "SIZE": size(channel.bytes),
        "BARRIERS": _barriers(channel.barriers),
        "STATUS": _status(channel),
    }


def _barriers(waiting: list[int]) -> str:
    # A barrier that overtook records stays in the log until those records are consumed.
    if len(waiting) > _BARRIERS_SHOWN:
        return f"{waiting[0]} … {waiting[-1]}"
    return ", ".join(map(str, waiting)) or "-"


def _status(channel: ChannelInfo) -> str:
    words = [
        None if channel.blocked_at is None else f"blocked at barrier {channel.blocked_at}",
        "full" if channel.is_full else None,
        "ended" if channel.has_ended else None,
    ]
    return ", ".join(word for word in words if word is not None) or "open"
