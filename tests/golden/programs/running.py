"""What all golden programs share: where they run, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.common import Configuration, Encoder
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink, RollingPolicy
from penstock.testing import Burst, Idle, run_inline

HOME = Path("/tmp/penstock-golden")
"""Where golden jobs run, when they are made and when they are restored.

Committables name their files by absolute paths, so a golden directory is good for one place only.
"""
BEFORE, AFTER = 1000.0, 2000.0
"""The processing time of a job that is made, and of one that is restored, in seconds."""


@dataclass(frozen=True)
class Run:
    """One run of a golden program."""

    directory: Path
    more: bool = False
    """Whether all input comes, and then the end; else only the first half, and no end."""
    parallelism: int = 2
    settings: dict[str, str] = field(default_factory=dict)
    now: float | None = None
    servers: dict[str, str] = field(default_factory=dict)
    """Where servers are, by what they are called."""

    @property
    def output(self) -> Path:
        """Where results go."""
        return self.directory / "output"

    @property
    def checkpoints(self) -> Path:
        """The checkpoint directory."""
        return self.directory / "checkpoints"

    @property
    def clock(self) -> Callable[[], float]:
        """A clock that stands still."""
        now = (AFTER if self.more else BEFORE) if self.now is None else self.now
        return lambda: now

    def script(self, values: Iterable[Any], cut: int) -> list[Any]:
        """What a source plays: the values up to the cut, or all of them."""
        all_values = list(values)
        if self.more:
            return [Burst(all_values[:cut]), Burst(all_values[cut:])]
        return [Burst(all_values[:cut]), Idle()]

    def environment(self, job_id: str, **settings: str) -> StreamExecutionEnvironment:
        """Make an environment without Spark; `__` in a setting is a dot, `_` a hyphen."""
        # A golden directory wants many checkpoints, and whoever restores it wants to be quick.
        batch, interval = ("150", "300") if self.more else ("30", "60")
        given = {key.replace("__", ".").replace("_", "-"): text for key, text in settings.items()}
        configuration = Configuration.from_dict(
            {
                "penstock.job-id": job_id,
                "execution.checkpointing.dir": str(self.checkpoints),
                "execution.checkpointing.savepoint-dir": str(self.directory / "savepoints"),
                "execution.checkpointing.externalized-checkpoint-retention": (
                    "RETAIN_ON_CANCELLATION"
                ),
                "penstock.checkpoint.records": interval,
                "penstock.work-dir": str(self.directory / "work"),
                "penstock.state.local-dir": str(self.directory / "local"),
                "penstock.micro-batch.max-records": batch,
                "penstock.micro-batch.initial-records": batch,
                "penstock.source.poll-interval": "10 ms",
                "restart-strategy.type": "none",
                **given,
                **self.settings,
            }
        )
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        return run_inline(env, self.clock).set_parallelism(self.parallelism)

    def files(self, name: str, *, rolls_at_checkpoint: bool = True) -> FileSink:
        """Make a sink of lines; one that does not roll keeps its pieces in its state."""
        policy: RollingPolicy = RollingPolicy.on_checkpoint_rolling_policy()
        if not rolls_at_checkpoint:
            policy = RollingPolicy.default_rolling_policy(part_size=1_000)
        return (
            FileSink.for_row_format(self.output / name, Encoder.simple_string_encoder())
            .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
            .with_rolling_policy(policy)
            .build()
        )

    def lines(self, name: str) -> list[str]:
        """Read what the sink of that name shows."""
        parts = sorted(p for p in (self.output / name).glob("*") if not p.name.startswith("."))
        return [line for part in parts for line in part.read_text().splitlines()]
