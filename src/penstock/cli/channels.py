"""`penstock channels`: what waits between the steps of a running job."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.figures import size
from penstock.cli.requests import Conversation, asking_options
from penstock.cli.settings import echo_json, job_at
from penstock.cli.tables import table
from penstock.common.channel_info import ChannelInfo
from penstock.recovery.control import Channels

__all__ = ["channels"]

_HEADS = ("CHANNEL", "INPUT", "EXCHANGE", "MICRO-BATCHES", "RECORDS", "SIZE", "BARRIERS", "STATUS")
_NUMBERS = ("INPUT", "MICRO-BATCHES", "RECORDS", "SIZE")
_BARRIERS_SHOWN = 3


@click.command()
@click.argument("job")
@asking_options
def channels(
    job: str,
    timeout: float | None,
    as_json: bool,
    directory: Path | None,
    defines: tuple[str, ...],
    config: Path | None,
) -> None:
    """Show what waits in the channels of JOB now.

    JOB is an id, a name, or the path of a job's directory. It must be running: its driver is asked.
    """
    place, given = job_at(job, defines, config, directory)
    answer = Conversation(place, given, timeout).ask(Channels())
    if not answer.ok or answer.channels is None:
        raise click.ClickException(answer.message)
    if as_json:
        echo_json(answer.channels)
    elif answer.channels:
        click.echo(table(_HEADS, [_row(channel) for channel in answer.channels], numbers=_NUMBERS))
    else:
        click.echo("the job has no channels")


def _row(channel: ChannelInfo) -> tuple[str, ...]:
    return (
        channel.name,
        str(channel.input),
        channel.exchange,
        str(channel.micro_batches),
        f"{channel.records:,}",
        size(channel.bytes),
        _barriers(channel.barriers),
        _status(channel),
    )


def _barriers(waiting: list[int]) -> str:
    # Those that overtook stay in the log until the records before them are consumed.
    if len(waiting) > _BARRIERS_SHOWN:
        return f"{waiting[0]} … {waiting[-1]}"
    return ", ".join(map(str, waiting)) or "-"


def _status(channel: ChannelInfo) -> str:
    told = [
        None if channel.held_at is None else f"held at barrier {channel.held_at}",
        "full" if channel.is_full else None,
        "ended" if channel.has_ended else None,
    ]
    return ", ".join(word for word in told if word is not None) or "open"
