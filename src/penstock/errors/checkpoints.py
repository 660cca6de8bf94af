"""Errors of checkpoints and savepoints."""

from penstock.errors.base import PenstockError, plural


class CheckpointFailedError(PenstockError):
    """A checkpoint or savepoint that was requested did not complete."""

    checkpoint: int
    reason: str

    def __str__(self) -> str:
        if not self.checkpoint:
            return f"the checkpoint could not be taken: {self.reason}"
        return f"checkpoint {self.checkpoint} did not complete: {self.reason}; request it again"


class TooManyFailedCheckpointsError(PenstockError):
    """More checkpoints failed in a row than the job tolerates."""

    tolerable: int
    checkpoint: int
    reason: str
    template = (
        "checkpoint {checkpoint} failed: {reason}; "
        "execution.checkpointing.tolerable-failed-checkpoints is {tolerable}: remove the cause, or "
        "raise that number"
    )


class UncommittedOutputError(PenstockError):
    """A job was cancelled before the sinks committed the output of a completed checkpoint."""

    job: str
    checkpoint: int
    count: int

    def __str__(self) -> str:
        return (
            f"job {self.job!r} was cancelled before {plural(self.count, 'commit')} of its "
            f"completed checkpoint {self.checkpoint} succeeded; nothing was dropped: start the job "
            "again to commit and continue, or start it with --fresh to give the output up"
        )


class CorruptMetadataError(PenstockError):
    """The metadata of a checkpoint or savepoint is damaged, truncated, or not metadata at all."""

    path: str
    reason: str
    template = (
        "checkpoint metadata {path} cannot be used: {reason}; put back a good copy, or restore "
        "from another checkpoint or savepoint"
    )


class NotASavepointError(PenstockError):
    """A path that should be a savepoint is not one."""

    path: str
    reason: str
    template = (
        "{path} is not a savepoint: {reason}; nothing was deleted: give the directory that "
        "contains the _metadata of a savepoint"
    )


class NonRestoredStateError(PenstockError):
    """A snapshot holds state of operators that the job does not have."""

    path: str
    operators: tuple[str, ...]
    is_permanent = True
    template = (
        "{path} holds state that no step of this job restores: {operators}; give the steps their "
        "uid() back, or drop that state with --allow-non-restored-state"
    )


class RestoreMismatchError(PenstockError):
    """An operator cannot restore the state that a snapshot holds for it."""

    step: str
    path: str
    reason: str
    is_permanent = True
    template = "step {step!r} cannot be restored from {path}: {reason}"


class PickledSnapshotError(PenstockError):
    """A snapshot that is not in the job's own directories contains pickled data."""

    path: str
    what: tuple[str, ...]
    is_permanent = True
    template = (
        "snapshot {path} is outside of the job's own checkpoint and savepoint directories and "
        "contains pickled data ({what}), which can run any code when it is loaded; if you trust "
        "it, restore it with -D penstock.restore.allow-pickle=true"
    )


class BadCheckpointError(PenstockError):
    """The checkpoint to restore is damaged, and no older one can be used safely."""

    checkpoint: int
    damage: str
    older: int | None
    is_permanent = True

    def __str__(self) -> str:
        problem = f"checkpoint {self.checkpoint} cannot be restored: {self.damage}"
        if self.older is None:
            return (
                f"{problem}; there is no older checkpoint: repair the file, restore a savepoint "
                "with -s, or start from the beginning with --fresh, which deletes nothing"
            )
        return (
            f"{problem}; sinks may already have committed its output, and restoring checkpoint "
            f"{self.older} would write that output again: repair the file, or accept duplicates "
            "with -D penstock.recovery.accept-duplicates=true"
        )


class SnapshotError(PenstockError):
    """What is asked of a snapshot cannot be done."""


class NotASnapshotError(SnapshotError):
    """A path that should be a checkpoint, a savepoint or a job is none."""

    path: str
    template = (
        "{path} is no checkpoint, savepoint or job: give the directory with its _metadata, or that "
        "of a job"
    )


class NoCheckpointError(SnapshotError):
    """A job has no completed checkpoint."""

    job: str
    template = "job {job!r} has no completed checkpoint yet: wait for the first one"


class UnknownCheckpointError(SnapshotError):
    """A job does not retain a checkpoint."""

    job: str
    checkpoint: int
    known: tuple[int, ...]
    template = "job {job!r} retains no checkpoint {checkpoint}; there are: {known}"


class UnknownOperatorError(SnapshotError):
    """A snapshot has no operator with a uid or name, or several with the name."""

    snapshot: str
    operator: str
    known: tuple[str, ...]
    template = "{snapshot} has no operator with the uid {operator!r}; there are: {known}"


class UnknownStateError(SnapshotError):
    """An operator has no keyed state with a name."""

    operator: str
    state: str
    known: tuple[str, ...]
    template = "operator {operator!r} has no keyed state {state!r}; there are: {known}"


class StateNotQueryableError(SnapshotError):
    """A state was asked for whose program does not let others look it up."""

    operator: str
    state: str
    template = (
        "state {state!r} of operator {operator!r} is not queryable: let the program call "
        "set_queryable() on its descriptor, or set penstock.queryable-state.enabled for the job"
    )


class StaleStateError(SnapshotError):
    """The state that can be read is older than the caller accepts."""

    age_s: float
    most_s: float
    template = (
        "the newest state is {age_s:.1f} s old, and at most {most_s:g} s are accepted: ask again "
        "later, accept more, or take checkpoints more often"
    )


class StateUnavailableError(SnapshotError):
    """The state of the running job cannot be read now."""

    job: str
    reason: str
    template = (
        "the latest state of job {job!r} cannot be read: {reason}; level=committed needs no driver"
    )


class KeyNotOfTypeError(SnapshotError):
    """A key that was asked for is not of the type of the state's keys."""

    key: object
    type: str
    reason: str
    template = "{key} is no key of type {type}: {reason}"


class DisappearedSnapshotError(SnapshotError):
    """A checkpoint was deleted while it was read."""

    path: str
    template = (
        "{path} was deleted while it was read, because its job has completed newer ones: read "
        "again, or take a savepoint"
    )


class BadCursorError(SnapshotError):
    """A cursor that was passed to continue a scan does not come from one."""

    cursor: object
    template = "{cursor} is no cursor: pass the one of the page before, unchanged"


class IncomparableSnapshotsError(SnapshotError):
    """Two snapshots have the keys of an operator in different places or forms."""

    before: str
    after: str
    operator: str
    what: str
    one: str
    other: str
    template = (
        "{before} and {after} cannot be compared key by key: the {what} of operator {operator!r} "
        "is {one} in one and {other} in the other"
    )


class ExistingFileError(SnapshotError):
    """A file that is to be written exists."""

    path: str
    template = "{path} exists and is not overwritten: remove it, or choose another name"


class StateOptionError(SnapshotError):
    """An option for reading or writing state is wrong, or conflicts with another one."""

    option: str
    reason: str
    template = "option {option}: {reason}"


class StateReadError(SnapshotError):
    """State could not be read as a DataFrame."""

    path: str
    reason: str
    template = "{path} could not be read: {reason}"


class SavepointWriteError(PenstockError):
    """A savepoint cannot be written as it was asked for."""

    is_permanent = True


class SavepointExistsError(SavepointWriteError):
    """There is a savepoint at the path where one should be written."""

    path: str
    template = "{path} has a savepoint already, which is never overwritten: choose another path"


class SavepointBeingWrittenError(SavepointWriteError):
    """Another process is writing a savepoint to the same path."""

    path: str
    template = "another process is writing a savepoint to {path}: choose another path, or wait"


class BadSavepointContentError(SavepointWriteError):
    """What should be written does not fit; every problem that was found is named."""

    path: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        found = "".join(f"\n- {problem}" for problem in self.problems)
        return f"{self.path} is not written, because of {self._count()}:{found}"

    def _count(self) -> str:
        return plural(len(self.problems), "problem")


class InFlightDataError(SavepointWriteError):
    """A checkpoint that should become a savepoint has in-flight data."""

    path: str
    operators: tuple[str, ...]
    template = (
        "{path} is an unaligned checkpoint with in-flight data of {operators}, which no savepoint "
        "can hold: use a savepoint of the job instead, or an aligned checkpoint"
    )
