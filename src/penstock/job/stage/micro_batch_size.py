"""Adapts the number of records per micro-batch to a target duration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.channel.log import ChannelLog
from penstock.ids import ChannelId


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """The target duration and bounds of micro-batch sizes."""

    target_seconds: float
    initial: int
    maximum: int
    minimum: int = 1000


def next_size(
    size: int, records: int, seconds: float, working_seconds: float, limits: SizeLimits
) -> int:
    """Return the next size after a micro-batch of `records` took `seconds`.

    Its slowest task worked `working_seconds` of these; the rest is a fixed cost. Where the fixed
    cost is near the target, a smaller micro-batch would only waste more, so the work is never
    aimed below the fixed cost. A micro-batch that was not full does not show how many more records
    would have fitted, unless it was too slow already.
    """
    if records <= 0 or working_seconds <= 0:
        return size
    fixed = max(0.0, seconds - working_seconds)
    wanted = max(limits.target_seconds - fixed, fixed)
    fitting = records * wanted / working_seconds
    if records < size * 0.5 and fitting >= records:
        return size
    bounded = min(max(fitting, min(size, records) * 0.5), size * 4)
    return int(min(max(bounded, limits.minimum), limits.maximum))


def is_light(size: int, records: int, seconds: float, working_seconds: float) -> bool:
    """Whether a micro-batch took hardly longer than an empty one, and could have held more.

    It took `seconds`, of which its slowest task worked `working_seconds`: with twice the records
    it would have taken about as long.
    """
    return records * 2 < size and working_seconds * 4 < seconds


def size_for_consumers(
    size: int, preferred: Iterable[tuple[int, float]], limits: SizeLimits
) -> int:
    """Return `size`, or less where a consumer prefers smaller micro-batches.

    `preferred` holds, for each output, how many records its consumer prefers and how many records
    this stage emits per input record: what is published in one entry is consumed in one piece.
    """
    fitting = [int(records / made) for records, made in preferred if made > 0]
    return max(min([size, *fitting]), min(size, limits.minimum))


class MicroBatchSizer:
    """The size of a region's next micro-batch, from the durations of those before."""

    def __init__(self, limits: SizeLimits) -> None:
        self._limits = limits
        self._rows_per_record: dict[ChannelId, float] = {}
        self.size = limits.initial
        self.is_light = False
        """Whether the last micro-batch took hardly longer than an empty one."""

    def next_size(self, outputs: Mapping[ChannelId, ChannelLog]) -> int:
        """Return how many records to take, given what the consumers of the outputs prefer."""
        preferred = [
            (log.preferred_records, self._rows_per_record.get(channel, 1.0))
            for channel, log in outputs.items()
            if log.preferred_records is not None
        ]
        return size_for_consumers(self.size, preferred, self._limits)

    def observe_output(self, channel: ChannelId, rows: int, records: int) -> None:
        """Record how many rows a micro-batch of `records` wrote to an output."""
        self._rows_per_record[channel] = rows / max(records, 1)

    def observe(self, records: int, seconds: float, working_seconds: float) -> None:
        """Adapt to the duration of a published micro-batch."""
        self.is_light = is_light(self.size, records, seconds, working_seconds)
        self.size = next_size(self.size, records, seconds, working_seconds, self._limits)
