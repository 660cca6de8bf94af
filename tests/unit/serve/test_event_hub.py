"""Event streams whose states cannot be computed for a while."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from penstock.serve.events import EventHub


async def next_event(stream: object) -> bytes:
    async for event in stream:  # type: ignore[attr-defined]
        if event.startswith(b"event"):
            return bytes(event)
    raise AssertionError


def test_a_state_that_cannot_be_encoded_ends_no_stream() -> None:
    async def run() -> None:
        hub = EventHub(every_s=0.02)
        values: list[object] = [1]
        hub.open(["jobs"], lambda topic: values[-1])
        stream = hub.events(["jobs"])
        assert await asyncio.wait_for(next_event(stream), 5) == b"event: jobs\ndata: 1\n\n"
        values.append(object())
        await asyncio.sleep(0.2)
        values.append(2)
        assert await asyncio.wait_for(next_event(stream), 5) == b"event: jobs\ndata: 2\n\n"

    asyncio.run(run())


def test_a_task_that_has_ended_is_started_again() -> None:
    async def run() -> None:
        hub = EventHub(every_s=0.02)
        values: list[object] = [1]
        hub.open(["jobs"], lambda topic: values[-1])
        stream = hub.events(["jobs"])
        await asyncio.wait_for(next_event(stream), 5)
        assert hub._task is not None
        hub._task.cancel()
        with suppress(asyncio.CancelledError):
            await hub._task
        values.append(2)
        async with hub._changed:
            hub._changed.notify_all()
        assert await asyncio.wait_for(next_event(stream), 5) == b"event: jobs\ndata: 2\n\n"

    asyncio.run(run())
