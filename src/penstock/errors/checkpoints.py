"""Errors of checkpoints and savepoints."""

from penstock.errors.base import PenstockError


class CheckpointFailedError(PenstockError):
    """A checkpoint or savepoint that somebody asked for did not complete."""

    def __init__(self, checkpoint: int, reason: str) -> None:
        super().__init__(checkpoint, reason)
        self.checkpoint = checkpoint
        self.reason = reason

    def __str__(self) -> str:
        if not self.checkpoint:
            return f"the checkpoint could not be taken: {self.reason}"
        return f"checkpoint {self.checkpoint} did not complete: {self.reason}; ask again"


class TooManyFailedCheckpointsError(PenstockError):
    """More checkpoints failed in a row than the job tolerates."""

    def __init__(self, tolerable: int, checkpoint: int, reason: str) -> None:
        super().__init__(tolerable, checkpoint, reason)
        self.tolerable = tolerable
        self.checkpoint = checkpoint
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"checkpoint {self.checkpoint} failed: {self.reason}; "
            f"execution.checkpointing.tolerable-failed-checkpoints is {self.tolerable}"
        )


class UncommittedOutputError(PenstockError):
    """A job was cancelled while a completed checkpoint waited for its output to be committed."""

    def __init__(self, job: str, checkpoint: int, count: int) -> None:
        super().__init__(job, checkpoint, count)
        self.job = job
        self.checkpoint = checkpoint
        self.count = count

    def __str__(self) -> str:
        return (
            f"job {self.job!r} was cancelled while {self.count} commits of its completed "
            f"checkpoint {self.checkpoint} had not succeeded; nothing was dropped: start it again "
            "to commit them and go on, or start it with --fresh to give them up"
        )


class CorruptMetadataError(PenstockError):
    """The metadata of a checkpoint or savepoint is damaged, cut short, or no such file."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"checkpoint metadata {self.path} cannot be used: {self.reason}; "
            "put back a good copy, or restore from another checkpoint or savepoint"
        )


class NotASavepointError(PenstockError):
    """A path was given as that of a savepoint, and it is none."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.path} is no savepoint: {self.reason}; it was left as it is: give the "
            "directory that holds a savepoint's _metadata"
        )


class NonRestoredStateError(PenstockError):
    """A snapshot holds state of operators that the job does not have."""

    def __init__(self, path: str, operators: tuple[str, ...]) -> None:
        super().__init__(path, operators)
        self.path = path
        self.operators = operators

    def __str__(self) -> str:
        return (
            f"{self.path} holds state that no step of this job takes over: "
            f"{', '.join(self.operators)}; give the steps their uid() back, or drop that state "
            "with --allow-non-restored-state"
        )


class RestoreMismatchError(PenstockError):
    """An operator cannot take over the state it had."""

    def __init__(self, step: str, path: str, reason: str) -> None:
        super().__init__(step, path, reason)
        self.step = step
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"step {self.step!r} cannot be restored from {self.path}: {self.reason}"


class BadCheckpointError(PenstockError):
    """The checkpoint to restore is damaged, and an older one cannot be taken unharmed."""

    def __init__(self, checkpoint: int, damage: str, older: int | None) -> None:
        super().__init__(checkpoint, damage, older)
        self.checkpoint = checkpoint
        self.damage = damage
        self.older = older

    def __str__(self) -> str:
        said = f"checkpoint {self.checkpoint} cannot be restored: {self.damage}"
        if self.older is None:
            return (
                f"{said}; there is no older one: mend the file, restore a savepoint with -s, or "
                "begin anew with --fresh, which deletes nothing"
            )
        return (
            f"{said}; sinks may have committed what belongs to it, so going back to checkpoint "
            f"{self.older} would emit that twice: mend the file, or accept duplicates with "
            "-D penstock.recovery.accept-duplicates=true"
        )
