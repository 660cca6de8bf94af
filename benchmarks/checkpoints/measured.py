"""The measurements of one checkpoint, as the measuring process sends them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import mean, median

SETTLING = "settling"
CHANGE = "change"


@dataclass(frozen=True)
class CheckpointCost:
    """One checkpoint: its size, and its duration since the trigger."""

    phase: str
    share: float
    """Of the keys, how many were to change since the one before."""
    changed: int
    position: int
    duration_s: float
    new_bytes: int
    full_bytes: int
    start_delay_s: float
    """Until the keyed step came to the barrier: micro-batches that ran when it was triggered."""
    alignment_s: float
    """The keyed step's micro-batch that ends at the barrier."""
    sync_s: float
    async_s: float
    snapshot_s: float
    """Of the alignment, what a task took for its local snapshot."""
    parts: dict[str, float] = field(default_factory=dict)
    steps: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Series:
    """All checkpoints of one job."""

    backend: str
    variant: str
    megabytes: float
    keys: int
    build_s: float
    checkpoints: Sequence[CheckpointCost]

    @property
    def shares(self) -> list[float]:
        return sorted({one.share for one in self._changes()})

    def at(self, share: float) -> Costs:
        return Costs([one for one in self._changes() if one.share == share])

    def _changes(self) -> list[CheckpointCost]:
        return [one for one in self.checkpoints if one.phase == CHANGE]


@dataclass(frozen=True)
class Costs:
    """Checkpoints that were taken under the same conditions."""

    checkpoints: Sequence[CheckpointCost]

    def __bool__(self) -> bool:
        return bool(self.checkpoints)

    @property
    def bytes(self) -> float:
        return median(one.new_bytes for one in self.checkpoints)

    @property
    def mean_bytes(self) -> float:
        """With what merging and folding make of it now and then."""
        return mean(one.new_bytes for one in self.checkpoints)

    @property
    def seconds(self) -> float:
        return median(one.duration_s for one in self.checkpoints)

    @property
    def own_seconds(self) -> float:
        """Without the micro-batches that had to end before."""
        return self.median_of(lambda one: one.duration_s - one.start_delay_s - one.alignment_s)

    def median_of(self, value: Callable[[CheckpointCost], float]) -> float:
        return median(map(value, self.checkpoints))


def series_of(given: dict[str, object], result: dict[str, object]) -> Series:
    """Combine the request to a process with its answer."""
    measured = result["checkpoints"]
    assert isinstance(measured, list)
    return Series(
        backend=str(given["backend"]),
        variant=str(given["variant"]),
        megabytes=float(str(given["megabytes"])),
        keys=int(str(result["keys"])),
        build_s=float(str(result["build_s"])),
        checkpoints=[CheckpointCost(**one) for one in measured],
    )


def find(series: Iterable[Series], backend: str, variant: str, megabytes: float) -> Series | None:
    wanted = (backend, variant, megabytes)
    return next((s for s in series if (s.backend, s.variant, s.megabytes) == wanted), None)
