"""A read-only view of the channels of a running job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.channel.log import ChannelLog, EntryKind
from penstock.common.channel_info import ChannelInfo
from penstock.common.storage_url import Location
from penstock.errors import UnknownChannelError
from penstock.graph.plan import Plan
from penstock.ids import ChannelId, CheckpointId
from penstock.job.input.waiting_rows import waiting_rows
from penstock.recovery.channel_matching import ChannelEndpoints, channel_endpoints


@dataclass(frozen=True, slots=True)
class ChannelView:
    """The channels of one attempt; may be read from any thread."""

    plan: Plan
    logs: Mapping[ChannelId, ChannelLog]
    """Empty if no attempt runs."""
    blocked: Callable[[], Mapping[ChannelId, CheckpointId]]
    """Returns the channels blocked at a barrier."""
    directory: Callable[[ChannelId], Location]
    """Returns where the segments of a channel are."""

    def facts(self) -> list[ChannelInfo]:
        """Return what waits in each channel now."""
        blocked, names = self.blocked(), _names(self.plan)
        return [
            _fact(end, names[channel], self.logs[channel], blocked.get(channel))
            for channel, end in channel_endpoints(self.plan).items()
            if channel in self.logs
        ]

    def rows(self, channel: str | int, limit: int | None = None) -> pa.Table:
        """Return the waiting records, barriers and end of a channel, at most `limit` of them.

        Entries that are consumed meanwhile are left out.

        Raises:
            UnknownChannelError: there is no channel of that name or id.
            CorruptSegmentError: a segment file is damaged.
        """
        names = _names(self.plan)
        found = next((c for c in self.plan.channels if channel in (names[c.id], c.id)), None)
        if found is None:
            raise UnknownChannelError(channel, list(names.values()))
        log = self.logs.get(found.id)
        first, entries = (0, ()) if log is None else log.peek()
        return waiting_rows(entries, first, found.record_type, self.directory(found.id), limit)


def _fact(
    end: ChannelEndpoints, name: str, log: ChannelLog, blocked_at: CheckpointId | None
) -> ChannelInfo:
    _, entries = log.peek()
    return ChannelInfo(
        id=end.channel.id,
        name=name,
        producer=end.producer.name,
        producer_uid=end.producer.uid,
        consumer=end.consumer.name,
        consumer_uid=end.consumer.uid,
        input=end.channel.input + 1,
        exchange=end.channel.exchange.value,
        micro_batches=sum(entry.kind is EntryKind.DATA for entry in entries),
        records=sum(entry.rows for entry in entries),
        bytes=sum(entry.size for entry in entries),
        barriers=[entry.checkpoint for entry in entries if entry.checkpoint is not None],
        blocked_at=blocked_at,
        is_full=log.is_full(),
        has_ended=log.is_complete(),
    )


def _names(plan: Plan) -> dict[ChannelId, str]:
    """Name every channel by its producer and consumer; equal names are numbered."""
    seen: Counter[str] = Counter()
    names = {}
    for channel, end in channel_endpoints(plan).items():
        side = "" if end.channel.tag is None else f" [{end.channel.tag}]"
        name = f"{end.producer.name}{side} -> {end.consumer.name}"
        seen[name] += 1
        names[channel] = name if seen[name] == 1 else f"{name} #{seen[name]}"
    return names
