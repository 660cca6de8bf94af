"""The channels of a running job, looked at from outside: nothing here changes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import pyarrow as pa

from penstock.channel.log import ChannelLog, Entry, EntryKind
from penstock.common.channel_info import ChannelInfo
from penstock.errors import UnknownChannelError
from penstock.graph.plan import Channel, Plan
from penstock.ids import ChannelId, CheckpointId
from penstock.job.waiting_rows import waiting_rows


class ChannelView:
    """The channels of one attempt; any thread may look."""

    def __init__(
        self,
        plan: Plan,
        logs: Mapping[ChannelId, ChannelLog],
        held: Callable[[], Mapping[ChannelId, CheckpointId]],
        directory: Callable[[ChannelId], Path],
    ) -> None:
        """Take what an attempt has; without `logs`, when there is none, nothing waits anywhere.

        `held` tells which channels wait at a barrier, `directory` where their segments lie.
        """
        self._plan = plan
        self._logs = logs
        self._held = held
        self._directory = directory
        self._nodes = {node.id: node for stage in plan.stages for node in stage.nodes}
        self._names = _names(plan)

    def facts(self) -> list[ChannelInfo]:
        """Return what waits in each channel now."""
        held = self._held()
        return [
            self._fact(channel, self._logs[channel.id], held.get(channel.id))
            for channel in self._plan.channels
            if channel.id in self._logs
        ]

    def rows(self, channel: str | int, limit: int | None = None) -> pa.Table:
        """Return the records, barriers and ends that wait in a channel, at most `limit` of them.

        What is consumed while it is being read is left out.

        Raises:
            UnknownChannelError: there is no channel of that name or id.
            CorruptSegmentError: a file that waits to be read is damaged.
        """
        found = self._find(channel)
        log = self._logs.get(found.id)
        first, entries = (0, ()) if log is None else log.look()
        return waiting_rows(entries, first, found.record_type, self._directory(found.id), limit)

    def _find(self, wanted: str | int) -> Channel:
        for channel in self._plan.channels:
            if wanted in (self._names[channel.id], channel.id):
                return channel
        raise UnknownChannelError(wanted, list(self._names.values()))

    def _fact(self, channel: Channel, log: ChannelLog, held_at: CheckpointId | None) -> ChannelInfo:
        _, entries = log.look()
        producer = self._nodes[channel.source_node]
        consumer = self._plan.stages[channel.consumer].head
        return ChannelInfo(
            id=channel.id,
            name=self._names[channel.id],
            producer=producer.name,
            producer_uid=producer.uid,
            consumer=consumer.name,
            consumer_uid=consumer.uid,
            input=channel.input + 1,
            exchange=channel.exchange.value,
            micro_batches=_count(entries, EntryKind.DATA),
            records=sum(entry.rows for entry in entries),
            bytes=sum(entry.size for entry in entries),
            barriers=[entry.checkpoint for entry in entries if entry.checkpoint is not None],
            held_at=held_at,
            is_full=log.is_full(),
            has_ended=log.is_complete(),
        )


def _count(entries: Collection[Entry], kind: EntryKind) -> int:
    return sum(1 for entry in entries if entry.kind is kind)


def _names(plan: Plan) -> dict[ChannelId, str]:
    """Name every channel by the steps at its ends; the second of a name gets a number."""
    steps = {node.id: node.name for stage in plan.stages for node in stage.nodes}
    seen: Counter[str] = Counter()
    names = {}
    for channel in plan.channels:
        side = "" if channel.tag is None else f" [{channel.tag}]"
        name = f"{steps[channel.source_node]}{side} -> {plan.stages[channel.consumer].head.name}"
        seen[name] += 1
        names[channel.id] = name if seen[name] == 1 else f"{name} #{seen[name]}"
    return names
