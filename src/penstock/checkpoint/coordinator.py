"""The coordinator: triggers checkpoints, collects acknowledgements, completes them.

It lives on the driver and runs in a thread of its own; everything reaches it as an event, so
its state needs no locks. Loops of stages read `barriers_for` and hand over their cuts; each stage
has a lane in which its cuts become durable in the order of their barriers, while its loop goes
on. Completing a checkpoint is one order of writes: metadata, read back, journal, and only then
anything that others can see.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path

import msgspec

from penstock.checkpoint.commits import CommitLane
from penstock.checkpoint.cut import Passing
from penstock.checkpoint.decider import Request, RequestKind, Trigger, TriggerFacts, decide
from penstock.checkpoint.events import (
    Acknowledged,
    Asked,
    CommitFailed,
    Committed,
    Declined,
    Ended,
    Event,
    Look,
    Prepared,
)
from penstock.checkpoint.failures import AbortReason, FailureCount
from penstock.checkpoint.file_keeper import FileKeeper
from penstock.checkpoint.in_flight import AbandonedError
from penstock.checkpoint.job_side import JobSide, StageFacts
from penstock.checkpoint.metadata import CommittableState, OperatorSnapshot, SinkState
from penstock.checkpoint.owed import Owed
from penstock.checkpoint.pending import Answer, PendingCheckpoint, StageCut, StageSnapshot
from penstock.checkpoint.settings import CheckpointSettings, Guarantee
from penstock.checkpoint.store import CheckpointStore, Completed
from penstock.checkpoint.story import Story, StoryEvent
from penstock.crash_points import CrashPoint, reach
from penstock.errors import CheckpointFailedError, TooManyFailedCheckpointsError
from penstock.ids import CheckpointId, StageId
from penstock.task.messages import Notice, NoticeKind

logger = logging.getLogger("penstock.checkpoint")

_BEFORE_ANOTHER_FINAL_S = 1.0
_EXPECTED = (AbortReason.SUBSUMED, AbortReason.JOB_STOPPING)


class Coordinator:
    """Checkpoints of one attempt of a job."""

    def __init__(
        self,
        stages: Sequence[StageFacts],
        settings: CheckpointSettings,
        store: CheckpointStore,
        files: FileKeeper,
        commits: CommitLane,
        job: JobSide,
    ) -> None:
        self._stages = {s.id: s for s in stages}
        self._settings = settings
        self._store = store
        self._files = files
        self._commits = commits
        self._job = job
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)
        self._lanes = {
            s.id: ThreadPoolExecutor(1, thread_name_prefix=f"persist-{s.id}") for s in stages
        }
        self._pending: dict[CheckpointId, PendingCheckpoint] = {}
        self._live: Mapping[CheckpointId, Passing] = {}
        self._sent: dict[StageId, CheckpointId] = {}
        self._queued: list[Request] = []
        self._answers: dict[str, Future[Completed]] = {}
        self._owed = Owed()
        self._failures = FailureCount()
        self._ended: set[StageId] = set()
        self._is_ending = False
        self._stop = ""
        """The request whose checkpoint ends the job, once that is complete."""
        self._final_not_before = 0.0
        self._draining = False
        self._quiet = False
        self._records = 0
        self._last_trigger = time.time()
        self._last_end = 0.0
        self._notices: dict[StageId, list[Notice]] = {s.id: [] for s in stages if s.listens}
        self._notices_lock = threading.Lock()
        self._request_ids = count(1)
        self._asking = threading.Lock()
        self._stopped = False

    # -- called by the loops of stages ------------------------------------------------------

    @property
    def live(self) -> Mapping[CheckpointId, Passing]:
        """The checkpoints neither complete nor aborted, and how to pass their barriers."""
        return self._live

    @property
    def quiet(self) -> bool:
        """Whether sources shall plan nothing, because the job is being stopped."""
        return self._quiet

    @property
    def draining(self) -> bool:
        """Whether sources shall come to their end here."""
        return self._draining

    def next_barrier(self, source: StageId) -> CheckpointId | None:
        """Return the next barrier a source stage has to send, if one is due."""
        sent = self._sent.get(source, 0)
        return next((n for n in self._live if n > sent), None)

    def rolls_all(self, checkpoint: CheckpointId) -> bool:
        """Whether sinks must leave nothing unfinished at this barrier."""
        pending = self._pending.get(checkpoint)
        return pending is not None and pending.rolls_all

    def savepoint_path(self, checkpoint: CheckpointId) -> Path | None:
        """Return where state goes in the canonical format; None for a checkpoint."""
        pending = self._pending.get(checkpoint)
        path = None if pending is None else pending.request.path
        return None if path is None else Path(path)

    def listens(self, stage: StageId) -> bool:
        """Whether functions of a stage want to be told of checkpoints."""
        return stage in self._notices

    def triggered(self, checkpoint: CheckpointId) -> float:
        """Return when a live checkpoint was triggered."""
        pending = self._pending.get(checkpoint)
        return time.time() if pending is None else pending.triggered

    def tell(self, checkpoint: CheckpointId, event: StoryEvent, stage: str, what: str = "") -> None:
        """Add to a checkpoint's story."""
        pending = self._pending.get(checkpoint)
        if pending is not None:
            pending.story.tell(event, stage, what)

    def hand_over(self, cut: StageCut) -> None:
        """Take a stage's cut; from here on it becomes durable while the stage goes on."""
        self._sent[cut.stage] = cut.checkpoint
        self._files.hold(_holder(cut), cut.files)
        self._lanes[cut.stage].submit(self._persist, cut)

    def ended(self, stage: StageId) -> None:
        """Learn that a stage has published the last of its input."""
        self._events.put(Ended(stage))

    def count(self, records: int) -> None:
        """Learn how many records the sources took in."""
        self._records += records
        if self._settings.records is not None and self._records >= self._settings.records:
            self._events.put(Look())

    def take_notices(self, stage: StageId) -> list[Notice]:
        """Return what the functions of a stage have not been told yet."""
        if stage not in self._notices:
            return []
        with self._notices_lock:
            told, self._notices[stage] = self._notices[stage], []
        return told

    def has_notices(self, stage: StageId) -> bool:
        """Whether a stage has something to tell its functions."""
        return bool(self._notices.get(stage))

    # -- called by the job ------------------------------------------------------------------

    def start(self) -> None:
        """Begin to trigger."""
        self._thread.start()

    def ask(self, kind: RequestKind, path: str | None = None) -> Future[Completed]:
        """Ask for a checkpoint or savepoint by hand; any thread."""
        request = Request(kind, f"r{next(self._request_ids)}", path)
        answer: Future[Completed] = Future()
        with self._asking:
            if self._stopped:
                answer.set_exception(_ended_before())
            else:
                self._events.put(Asked(request, answer))
        return answer

    def drain(self, path: str | None) -> Future[Completed]:
        """Let all sources end here, and write the last checkpoint of the job as a savepoint."""
        answer = self.ask(RequestKind.FINAL, path)
        self._draining = True
        self._job.wake()
        return answer

    def owed(self) -> dict[str, list[CommittableState]]:
        """Return what sinks have prepared and not committed; once the coordinator has stopped."""
        return self._owed.all()

    def stop(self) -> None:
        """End: pending checkpoints are aborted, what is being made durable is waited for."""
        with self._asking:
            self._stopped = True
            self._events.put(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        for lane in self._lanes.values():
            lane.shutdown(wait=True, cancel_futures=True)
        self._commits.close()
        self._take_the_rest()
        for pending in list(self._pending.values()):
            self._store.abandon(pending.id)
            self._record_abort(pending, AbortReason.JOB_STOPPING, "the attempt ended")
        self._pending.clear()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(_ended_before())

    def _take_the_rest(self) -> None:
        """Take what came too late for the coordinator's thread: nobody else will."""
        while not self._events.empty():
            match self._events.get():
                case Prepared(uid, committables):
                    self._owed.add(uid, committables)
                case Acknowledged(cut, _) | Declined(cut, _):
                    self._store.abandon(cut.checkpoint)
                case Asked(request, answer):
                    self._answers[request.id] = answer

    # -- the coordinator's thread -----------------------------------------------------------

    def _run(self) -> None:
        try:
            while True:
                wait = self._decide()
                try:
                    event = self._events.get(timeout=wait)
                except queue.Empty:
                    continue
                if event is None:
                    return
                self._handle(event)
        except BaseException as error:
            self._job.fail(error)

    def _decide(self) -> float | None:
        """Abort what took too long, trigger what is due; return when to look again."""
        while True:
            now = time.time()
            for pending in [p for p in self._pending.values() if p.expires <= now]:
                waiting = ", ".join(sorted(self._stages[s].name for s in pending.waiting))
                what = f"it took longer than {self._settings.timeout_s:g} s; missing: {waiting}"
                self._abort(pending, AbortReason.EXPIRED, what)
            self._let_overtake(now)
            decision = decide(self._facts(), now)
            if isinstance(decision, Trigger):
                self._trigger(decision.request)
                continue
            waits = [p.expires - now for p in self._pending.values()]
            waits += self._store.note_long_ones(self._pending.values(), now)
            waits += [
                at - now
                for p in self._pending.values()
                if (at := self._overtakes_at(p)) is not None
            ]
            if decision.seconds is not None:
                waits.append(decision.seconds)
            if now < self._final_not_before:
                waits.append(self._final_not_before - now)
            return max(min(waits), 0.001) if waits else None

    def _overtakes_at(self, pending: PendingCheckpoint) -> float | None:
        """Return when an alignment under way has lasted too long, None if it never has."""
        settings = self._settings
        if not settings.unaligned or pending.passing is not Passing.ALIGNED or pending.rolls_all:
            return None
        if all(self._sent.get(stage, 0) >= pending.id for stage in self._stages):
            return None
        return pending.triggered + settings.aligned_timeout_s

    def _let_overtake(self, now: float) -> None:
        """Let the barriers overtake that have waited too long."""
        for pending in self._pending.values():
            at = self._overtakes_at(pending)
            if at is not None and at <= now:
                pending.passing = Passing.UNALIGNED
                what = f"not aligned after {self._settings.aligned_timeout_s:g} s"
                pending.story.tell(StoryEvent.SWITCHED, None, what)
                self._publish_live()
                self._job.wake()

    def _passing(self, request: Request) -> Passing:
        """Return how the barriers of a new checkpoint are passed: those of savepoints align."""
        if request.path is not None or request.kind is RequestKind.STOP:
            return Passing.ALIGNED
        if self._settings.mode is Guarantee.AT_LEAST_ONCE:
            return Passing.TRACKED
        if self._settings.unaligned and self._settings.aligned_timeout_s == 0:
            return Passing.UNALIGNED
        return Passing.ALIGNED

    def _facts(self) -> TriggerFacts:
        periodic = self._settings.enabled and not self._is_ending and not self._draining
        return TriggerFacts(
            interval_s=self._settings.interval_s if periodic else None,
            records=self._settings.records if periodic else None,
            min_pause_s=self._settings.min_pause_s,
            max_concurrent=self._settings.max_concurrent,
            queued=tuple(r for r in self._queued if self._may_go(r)),
            in_flight=tuple(p.request.kind for p in self._pending.values()),
            last_trigger=self._last_trigger,
            last_end=self._last_end,
            records_since_trigger=self._records,
        )

    def _may_go(self, request: Request) -> bool:
        # The last checkpoint of a job comes behind the end of all its data.
        if request.kind is not RequestKind.FINAL:
            return True
        return len(self._ended) == len(self._stages) and time.time() >= self._final_not_before

    def _trigger(self, request: Request) -> None:
        if request in self._queued:
            self._queued.remove(request)
        now = time.time()
        checkpoint = self._store.next_id()
        story = Story(checkpoint)
        story.tell(StoryEvent.TRIGGERED, None, request.kind.value)
        pending = PendingCheckpoint(
            id=checkpoint,
            request=request,
            triggered=now,
            expires=now + self._settings.timeout_s,
            story=story,
            waiting=set(self._stages),
            passing=self._passing(request),
        )
        self._pending[checkpoint] = pending
        self._last_trigger = now
        self._records = 0
        if pending.ends_the_job:
            self._is_ending = True
            self._quiet = True
        self._publish_live()
        reach(CrashPoint.COORDINATOR_TRIGGERED)
        self._job.wake()

    def _publish_live(self) -> None:
        self._live = {n: self._pending[n].passing for n in sorted(self._pending)}

    def _handle(self, event: Event) -> None:
        match event:
            case Prepared(uid, committables):
                # Also of a checkpoint that fails: its records are before the cut of the next.
                self._owed.add(uid, committables)
            case Acknowledged(cut, snapshot):
                self._acknowledge(cut, snapshot)
            case Declined(cut, error):
                self._decline(cut, error)
            case Asked(request, answer):
                self._answers[request.id] = answer
                self._queued.append(request)
            case Ended(stage):
                self._ended.add(stage)
                self._end_of_data()
            case Committed(completed, ends_the_job):
                self._owed.committed(completed.checkpoint)
                if ends_the_job:
                    self._answer_stop(completed, None)
                    self._job.end(completed)
            case CommitFailed(completed, error):
                what = f"its output could not be committed: {error}"
                self._answer_stop(completed, CheckpointFailedError(completed.checkpoint, what))
                self._job.fail(error)
            case Look():
                pass

    def _end_of_data(self) -> None:
        """If all data has been seen and nothing else ends the job, let the last checkpoint."""
        if len(self._ended) < len(self._stages) or self._ends_already():
            return
        if self._settings.enabled:
            self._queued.append(Request(RequestKind.FINAL, "final", None))
        else:
            self._job.end(None)

    def _ends_already(self) -> bool:
        asked = [*self._queued, *(p.request for p in self._pending.values())]
        return self._is_ending or any(
            r.kind in (RequestKind.FINAL, RequestKind.STOP) for r in asked
        )

    # -- acknowledgements -------------------------------------------------------------------

    def _persist(self, cut: StageCut) -> None:
        """Make a cut durable; runs in the stage's lane."""
        try:
            snapshot = cut.persist(lambda uid, owed: self._events.put(Prepared(uid, owed)))
            reach(CrashPoint.STAGE_SNAPSHOT_DURABLE)
        except BaseException as error:
            self._events.put(Declined(cut, error))
        else:
            self._events.put(Acknowledged(cut, snapshot))

    def _acknowledge(self, cut: StageCut, snapshot: StageSnapshot) -> None:
        pending = self._pending.get(cut.checkpoint)
        self._files.hold(_holder(cut), snapshot.files)
        snapshot.handed_over()
        answer = Answer.LATE if pending is None else pending.acknowledge(cut.stage, snapshot)
        if pending is None or answer is not Answer.ACCEPTED:
            self._files.release(_holder(cut))
            if answer is Answer.LATE:
                self._store.abandon(cut.checkpoint)
            return
        pending.story.tell(StoryEvent.ACKNOWLEDGED, self._stages[cut.stage].name)
        reach(CrashPoint.COORDINATOR_ACKNOWLEDGED)
        if pending.is_complete:
            self._complete(pending)

    def _decline(self, cut: StageCut, error: BaseException) -> None:
        self._files.release(_holder(cut))
        name = self._stages[cut.stage].name
        logger.debug("checkpoint %d failed in %s", cut.checkpoint, name, exc_info=error)
        pending = self._pending.get(cut.checkpoint)
        if pending is None:
            self._store.abandon(cut.checkpoint)
        elif isinstance(error, AbandonedError):
            self._abort(pending, AbortReason.JOB_STOPPING, "the attempt ended")
        else:
            self._abort(pending, AbortReason.ASYNC_FAILED, f"{name}: {error}")

    # -- the end of a checkpoint ------------------------------------------------------------

    def _complete(self, pending: PendingCheckpoint) -> None:
        operators = [self._with_owed(o, pending.id) for o in pending.operators()]
        try:
            completed = self._store.write(pending, operators)
        except OSError as error:
            self._abort(pending, AbortReason.FINALIZE_FAILED, f"its metadata: {error}")
            return
        reach(CrashPoint.COORDINATOR_METADATA_WRITTEN)
        # It may count from here on, whatever is raised: nobody may take it for a failed one.
        del self._pending[pending.id]
        self._store.win(completed)
        self._last_end = time.time()
        self._failures.completed()
        reach(CrashPoint.COORDINATOR_COMPLETED)
        self._job.completed(completed, operators)
        pending.story.tell(StoryEvent.COMPLETED, None, completed.path)
        commits = not pending.is_savepoint or pending.ends_the_job
        if commits:
            self._subsume(pending)
            self._job.settled(operators)
            self._notify(NoticeKind.COMPLETE, pending.id)
            owed = self._owed.upto(pending.id)
            self._commits.submit(
                completed.checkpoint,
                owed,
                lambda: self._events.put(Committed(completed, pending.ends_the_job)),
                lambda error: self._events.put(CommitFailed(completed, error)),
            )
        self._release(pending, completed)
        self._store.record(pending, completed)
        self._publish_live()
        logger.info("%s", completed)
        if pending.ends_the_job:
            self._stop = pending.request.id
        elif (answer := self._answers.pop(pending.request.id, None)) is not None:
            answer.set_result(completed)
        self._job.wake()

    def _answer_stop(self, completed: Completed, error: CheckpointFailedError | None) -> None:
        """Answer whoever asked for the end: only what is committed has stopped."""
        answer = self._answers.pop(self._stop, None)
        if answer is None:
            return
        if error is None:
            answer.set_result(completed)
        else:
            answer.set_exception(error)

    def _with_owed(self, operator: OperatorSnapshot, checkpoint: CheckpointId) -> OperatorSnapshot:
        if operator.sink is None:
            return operator
        owed = self._owed.of(operator.uid, checkpoint)
        return replace_sink(operator, SinkState(owed, operator.sink.state))

    def _subsume(self, by: PendingCheckpoint) -> None:
        for older in [p for p in self._pending.values() if p.id < by.id and not p.is_savepoint]:
            self._abort(older, AbortReason.SUBSUMED, f"checkpoint {by.id} completed before it")

    def _release(self, pending: PendingCheckpoint, completed: Completed) -> None:
        """Let the retained checkpoints, and nobody else, hold the files of this one."""
        files = [f for s in pending.acknowledged.values() for f in s.files]
        if not pending.is_savepoint:
            self._files.hold(f"chk-{pending.id}", files)
        for stage in pending.acknowledged:
            self._files.release(f"chk-{pending.id}-{stage}")
        if not pending.is_savepoint:
            gone = self._store.retain()
            for checkpoint in gone:
                self._files.release(f"chk-{checkpoint}")
            self._job.discarded(gone)
            reach(CrashPoint.COORDINATOR_SUBSUMED)

    def _abort(self, pending: PendingCheckpoint, reason: AbortReason, what: str) -> None:
        del self._pending[pending.id]
        self._last_end = time.time()
        self._publish_live()
        for stage in pending.acknowledged:
            self._files.release(f"chk-{pending.id}-{stage}")
        self._store.abandon(pending.id)
        self._record_abort(pending, reason, what)
        self._notify(NoticeKind.ABORTED, pending.id)
        answer = self._answers.pop(pending.request.id, None)
        if answer is not None:
            answer.set_exception(CheckpointFailedError(pending.id, what))
        if pending.ends_the_job:
            self._quiet = self._is_ending = False
            self._final_not_before = time.time() + _BEFORE_ANOTHER_FINAL_S
            if self._draining:
                # Sources were told to end where they stood: only going back undoes that.
                self._job.fail(CheckpointFailedError(pending.id, what))
            else:
                self._end_of_data()
        if not pending.is_savepoint and reason not in _EXPECTED:
            logger.warning("checkpoint %d failed: %s", pending.id, what)
            self._failures.failed(reason)
            if self._failures.exceeds(self._settings.tolerable_failures):
                error = TooManyFailedCheckpointsError(
                    self._settings.tolerable_failures, pending.id, what
                )
                self._is_ending = True
                self._job.fail(error)
        self._job.wake()

    def _record_abort(self, pending: PendingCheckpoint, reason: AbortReason, what: str) -> None:
        pending.story.tell(StoryEvent.ABORTED, None, f"{reason.value}: {what}")
        self._store.record(pending, None, f"{reason.value}: {what}")

    def _notify(self, kind: NoticeKind, checkpoint: CheckpointId) -> None:
        with self._notices_lock:
            for notices in self._notices.values():
                notices.append(Notice(kind, checkpoint))


def replace_sink(operator: OperatorSnapshot, sink: SinkState) -> OperatorSnapshot:
    """Return the snapshot of an operator with another sink part."""
    return msgspec.structs.replace(operator, sink=sink)


def _holder(cut: StageCut) -> str:
    return f"chk-{cut.checkpoint}-{cut.stage}"


def _ended_before() -> CheckpointFailedError:
    return CheckpointFailedError(0, "the job ended or failed before; ask again if it runs")
