"""The sinks of one attempt: their publishers and committers, and removal of unneeded output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.checkpoint.coordinator.commit_executor import CommitExecutor
from penstock.checkpoint.storage.metadata import CommittableState, OperatorSnapshot, SinkState
from penstock.common.storage_url import StorageUrl
from penstock.connectors.contracts.committer import Committer, CommitterContext
from penstock.connectors.contracts.sink import PublisherContext, SinkPublisher
from penstock.crash_points import CrashPoint, reach
from penstock.errors import RestoreMismatchError
from penstock.graph.job_graph import Node
from penstock.graph.plan import Stage
from penstock.graph.transformation import OperatorKind
from penstock.ids import CheckpointId
from penstock.job.attempt.inputs import close_quietly
from penstock.job.context import AttemptContext
from penstock.job.restore.retained_output import RetainedOutput
from penstock.task.layout import file_name


class AttemptSinks:
    """Commits restored output, opens the sinks, and lets them remove what no snapshot needs."""

    def __init__(self, context: AttemptContext) -> None:
        self._context = context
        self._nodes = [
            n for s in context.plan.stages for n in s.nodes if n.kind is OperatorKind.SINK
        ]
        self._committers: dict[str, Committer] = {}
        self._publishers: dict[int, SinkPublisher] = {}
        self._retained: RetainedOutput | None = None
        self.commits = self._commit_executor()

    def reset(self) -> None:
        """Commit what the restored checkpoint holds, remove later output, open the publishers."""
        pending: dict[str, list[CommittableState]] = {}
        for node in self._nodes:
            committer = self._open_committer(node)
            if committer is not None:
                self._committers[node.uid] = committer
                pending[node.uid] = self._restored_committables(node)
        # Before any new record: sinks commit in the order of checkpoint ids.
        self.commits.commit(self._context.restored.checkpoint, pending)
        reach(CrashPoint.RECOVERY_COMMITTED)
        retained = self._context.retained
        self._retained = RetainedOutput(retained.referenced_by_sinks, retained.is_disposed)
        self._sweep(self._retained.earlier, self._context.restored.sinks)
        for node in self._nodes:
            self._publishers[node.id] = self._open_publisher(node)

    def publishers_of(self, stage: Stage) -> dict[int, SinkPublisher]:
        """Return the publishers of a stage's sinks by node id."""
        ids = {node.id for node in stage.nodes}
        return {node: p for node, p in self._publishers.items() if node in ids}

    def add_snapshot(
        self, checkpoint: CheckpointId, operators: list[OperatorSnapshot], *, savepoint: bool
    ) -> None:
        """Record what sinks have in a completed snapshot."""
        if self._retained is not None:
            self._retained.keep(checkpoint, operators, savepoint=savepoint)

    def remove_snapshots(self, checkpoints: list[CheckpointId]) -> None:
        """Let sinks remove what only discarded checkpoints and disposed savepoints referenced."""
        if self._retained is not None:
            self.commits.discard(self._retained.forget(checkpoints))

    def commit_without_checkpoint(self, pending: dict[str, list[CommittableState]]) -> None:
        """Commit everything at the end of a job that takes no checkpoints."""
        # Higher than the ids of all savepoints: sinks commit in the order of ids.
        last = self._context.store.next_id()
        for node in self._nodes:
            prepared = self._publishers[node.id].at_barrier(last, flush=True)()
            pending.setdefault(node.uid, []).extend(
                CommittableState(last, data) for data in prepared.committables
            )
        # The coordinator has closed the first executor when it stopped.
        self._commit_executor().commit(CheckpointId(0), {u: c for u, c in pending.items() if c})

    def sweep_at_end(self, *, is_cancelled: bool) -> None:
        """Remove prepared output at the end of the job.

        The checkpoints of a finished job are deleted next. Those of a cancelled one may be
        retained: it removes only what belongs to no completed checkpoint.
        """
        discarded = () if is_cancelled else self._context.store.retained
        self._sweep(self._context.retained.referenced_by_sinks(discarded), {})

    def close(self) -> None:
        """Close all publishers and committers."""
        for publisher in self._publishers.values():
            close_quietly(publisher.close)
        for committer in self._committers.values():
            close_quietly(committer.close)

    def _commit_executor(self) -> CommitExecutor:
        return CommitExecutor(
            self._committers,
            {node.uid: node.name for node in self._nodes},
            self._context.store,
            self._context.job.checkpoints.committer_retries,
        )

    def _open_committer(self, node: Node) -> Committer | None:
        layout = self._context.layout
        committer: Committer | None = node.function.committer(
            CommitterContext(
                layout.job,
                layout.attempt,
                node.name,
                self._work_dir(node),
                layout.job_instance,
                node.input_type,
                self._store(node),
                self._context.job.checkpoints.storage_options,
            )
        )
        if committer is None and self._restored_committables(node):
            reason = "it has uncommitted output there, and this sink cannot commit"
            raise RestoreMismatchError(node.name, "the snapshot", reason)
        return committer

    def _open_publisher(self, node: Node) -> SinkPublisher:
        state, layout = self._context.restored.sinks.get(node.uid), self._context.layout
        publisher: SinkPublisher = node.function.publisher(
            PublisherContext(
                parallelism=node.parallelism,
                name=node.name,
                work_dir=self._work_dir(node),
                staging_dir=layout.sink_dirs(node.uid).staging,
                job=layout.job,
                attempt=layout.attempt,
                checkpointed=self._context.job.checkpoints.enabled,
                restored=() if state is None else state.state,
                job_instance=layout.job_instance,
                type_info=node.input_type,
                store=self._store(node),
            )
        )
        return publisher

    def _restored_committables(self, node: Node) -> list[CommittableState]:
        """Return the restored committables of a sink that may not be committed yet.

        Those that the journal says are committed are not committed again: the external system may
        no longer remember them, and would report them as lost.
        """
        return list(self._context.restored.pending.get(node.uid, ()))

    def _sweep(
        self, referenced: Mapping[str, Sequence[bytes]] | None, restored: Mapping[str, SinkState]
    ) -> None:
        """Let sinks remove output that no snapshot and no commit will ever need."""
        if referenced is None:
            return
        for uid, committer in self._committers.items():
            state = restored.get(uid)
            mine = [] if state is None else [*state.state, *(c.data for c in state.committables)]
            committer.sweep([*referenced.get(uid, ()), *mine])

    def _work_dir(self, node: Node) -> Path:
        return self._context.layout.sink_dirs(node.uid).work

    def _store(self, node: Node) -> StorageUrl | None:
        store = self._context.layout.connector_store
        return None if store is None else store / file_name(node.uid)
