from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.commands.channels import _barriers, _status
from penstock.common import ChannelInfo, JobClient
from tests.unit.cli.job_fixtures import end, endless_job, job_directory, json_of, penstock


@pytest.fixture
def client(tmp_path: Path) -> Iterator[JobClient]:
    client = endless_job(tmp_path)
    yield client
    end(client)


def test_the_channels_of_a_running_job_are_shown(client: JobClient, tmp_path: Path) -> None:
    (channel,) = json_of(penstock("channels", "endless", "--dir", tmp_path, "--json"))
    assert channel["name"] == "Map -> KEYED PROCESS"
    assert (channel["exchange"], channel["consumer_uid"]) == ("hash", "remember")
    result = penstock("channels", "endless", "--dir", tmp_path)
    assert result.exit_code == 0
    head, row = result.stdout.splitlines()
    assert " ".join(head.split()) == (
        "CHANNEL INPUT EXCHANGE MICRO-BATCHES RECORDS SIZE BARRIERS STATUS"
    )
    assert row.startswith("Map -> KEYED PROCESS      1  hash ")


def test_channels_of_a_job_without_a_driver_cannot_be_shown(tmp_path: Path) -> None:
    job_directory(tmp_path, "count")
    result = penstock("channels", "count", "--dir", tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "No driver is running job 'count': its status is SUSPENDED." in result.stderr


@pytest.mark.parametrize(
    ("waiting", "text"), [([], "-"), ([7], "7"), ([5, 6, 7], "5, 6, 7"), ([1, 2, 5, 9], "1 … 9")]
)
def test_many_barriers_are_abbreviated(waiting: list[int], text: str) -> None:
    assert _barriers(waiting) == text


@pytest.mark.parametrize(
    ("blocked_at", "is_full", "has_ended", "text"),
    [
        (None, False, False, "open"),
        (7, True, False, "blocked at barrier 7, full"),
        (None, False, True, "ended"),
    ],
)
def test_the_status_of_a_channel_is_in_words(
    blocked_at: int | None, is_full: bool, has_ended: bool, text: str
) -> None:
    channel = ChannelInfo(
        id=0,
        name="a -> b",
        producer="a",
        producer_uid="a",
        consumer="b",
        consumer_uid="b",
        input=0,
        exchange="hash",
        micro_batches=0,
        records=0,
        bytes=0,
        barriers=[],
        blocked_at=blocked_at,
        is_full=is_full,
        has_ended=has_ended,
    )
    assert _status(channel) == text
