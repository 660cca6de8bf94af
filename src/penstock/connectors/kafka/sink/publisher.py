"""Publisher of the exactly-once Kafka sink: turns staged records into committables."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from uuid import uuid4

from penstock.connectors.contracts.sink import SinkPublisher, SinkSnapshot
from penstock.connectors.kafka.sink.committable import (
    KafkaCommittable,
    StagedRecords,
    TransactionalIdentity,
    decode_staged,
    encode,
)
from penstock.connectors.staging.pre_commits import PreCommits
from penstock.connectors.staging.staged_output import PendingOutput, Spool, StagedOutput
from penstock.connectors.staging.staging_directory import StagingDirectory


class KafkaPublisher(SinkPublisher):
    """Collects published records, and makes them durable at the barrier: a part per subtask."""

    def __init__(
        self, identity: TransactionalIdentity, staging: StagingDirectory, attempt: int
    ) -> None:
        self._identity = identity
        self._staging = staging
        self._attempt = attempt
        self._pending: defaultdict[int, PendingOutput] = defaultdict(lambda: PendingOutput(staging))
        self._records: Counter[int] = Counter()
        self._pre_commits = PreCommits()

    def publish(self, staged: Sequence[bytes]) -> None:
        for subtask, entry in enumerate(staged):
            if entry:
                staged_records = decode_staged(entry)
                self._pending[subtask].add(staged_records.output)
                self._records[subtask] += staged_records.records

    def discard_staged(self, prefix: str) -> None:
        self._staging.remove_staged(prefix)

    def at_barrier(self, checkpoint: int, *, flush: bool) -> Callable[[], SinkSnapshot]:
        pending = [
            (output.finish(), self._records[subtask])
            for subtask, output in sorted(self._pending.items())
        ]
        self._pending.clear()
        self._records.clear()
        return self._pre_commits.add(lambda: self._prepare(checkpoint, pending))

    def close(self) -> None:
        for pending in self._pending.values():
            pending.close()

    def _prepare(
        self, checkpoint: int, pending: Sequence[tuple[list[StagedOutput], int]]
    ) -> list[bytes]:
        committables = [
            KafkaCommittable(
                self._identity,
                self._attempt,
                checkpoint,
                part,
                len(pending),
                self._staging.place,
                [
                    StagedRecords(output.name, output.size, 0 if at else records, output.data)
                    for at, output in enumerate(self._bounded(outputs))
                ],
            )
            for part, (outputs, records) in enumerate(pending)
        ]
        # Before any checkpoint names them: a completed checkpoint must survive a power loss.
        root = self._staging.root
        self._staging.make_durable({one.upload: one.moved(root).files for one in committables})
        return [encode(one) for one in committables]

    def _bounded(self, outputs: Sequence[StagedOutput]) -> list[StagedOutput]:
        """Return outputs of which only a single one is inline, to bound a checkpoint's metadata."""
        for output in outputs:
            output.check(self._staging.root)
        return [o if o.name or len(outputs) == 1 else self._in_file(o) for o in outputs]

    def _in_file(self, output: StagedOutput) -> StagedOutput:
        # A new name for each call: a pre-commit that failed is run again.
        spool = Spool(self._staging, f"cut-{uuid4().hex}.piece", max_inline=0)
        spool.add(output.data)
        return spool.finish()
