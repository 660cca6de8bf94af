"""Errors of programs and of the steps they are made of."""

from penstock.errors.base import PenstockError, on_record, show


class TypeMismatchError(PenstockError):
    """A value does not fit the type declared for it.

    ``path`` names the place inside the record (``"f1.amount"``), empty for the record itself.
    """

    def __init__(self, path: str, value: object, type_info: object) -> None:
        self.shown = show(value)
        super().__init__(path, self.shown, type_info)
        self.path = path
        self.type_info = type_info

    def __str__(self) -> str:
        where = f"field {self.path!r}" if self.path else "the record"
        return f"{where} does not fit its declared type {self.type_info!r}; got {self.shown}"


class InvalidJobError(PenstockError):
    """A program cannot be run as it was written; the text says what to change."""


class UnknownChannelError(PenstockError):
    """A channel was asked for that the job does not have; ``known`` are those it has."""

    def __init__(self, channel: str | int, known: list[str]) -> None:
        super().__init__(channel, known)
        self.channel = channel
        self.known = known

    def __str__(self) -> str:
        there = f"it has {', '.join(map(repr, self.known))}" if self.known else "it has none"
        return f"the job has no channel {self.channel!r}: {there}"


class DuplicateUidError(InvalidJobError):
    """Two steps of one job carry the same uid."""

    def __init__(self, uid: str, first: str, second: str) -> None:
        super().__init__(uid, first, second)
        self.uid = uid
        self.first = first
        self.second = second

    def __str__(self) -> str:
        return (
            f"uid {self.uid!r} is given twice: at {self.first} and at {self.second}; "
            "every step needs a uid of its own"
        )


class UnserializableFunctionError(InvalidJobError):
    """A function cannot be shipped to the tasks because of something it captured."""

    def __init__(self, step: str, captured: str, reason: str) -> None:
        super().__init__(step, captured, reason)
        self.step = step
        self.captured = captured
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"step {self.step!r} cannot be shipped to the tasks: it captures {self.captured} "
            f"({self.reason}); create it in open() instead"
        )


class UserFunctionError(PenstockError):
    """A user function raised; ``user_traceback`` holds its own frames only."""

    def __init__(self, step: str, record: object, cause: str, user_traceback: str) -> None:
        self.shown = show(record)
        super().__init__(step, self.shown, cause, user_traceback)
        self.step = step
        self.cause = cause
        self.user_traceback = user_traceback

    def __str__(self) -> str:
        return (
            f"step {self.step!r} failed {on_record(self.shown)}: {self.cause}\n"
            f"{self.user_traceback.rstrip()}"
        )


class StepError(PenstockError):
    """A step could not go on for a reason of penstock's own; names the step and the record."""

    def __init__(self, step: str, record: object, cause: str) -> None:
        self.shown = show(record)
        super().__init__(step, self.shown, cause)
        self.step = step
        self.cause = cause

    def __str__(self) -> str:
        return f"step {self.step!r} stopped {on_record(self.shown)}: {self.cause}"


class MicroBatchFailedError(PenstockError):
    """A micro-batch failed in every try it was given."""

    def __init__(self, stage: str, batch: int, tries: int, cause: str) -> None:
        super().__init__(stage, batch, tries, cause)
        self.stage = stage
        self.batch = batch
        self.tries = tries
        self.cause = cause

    def __str__(self) -> str:
        return (
            f"stage {self.stage!r}: micro-batch {self.batch} failed in all {self.tries} tries; "
            f"the last one said: {self.cause}"
        )


class CorruptSegmentError(PenstockError):
    """A channel segment is not what its producer wrote."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"channel segment {self.path} cannot be read: {self.reason}"


class JobCancelledError(PenstockError):
    """The job was cancelled before it finished."""

    def __init__(self, job_name: str) -> None:
        super().__init__(job_name)
        self.job_name = job_name

    def __str__(self) -> str:
        return f"job {self.job_name!r} was cancelled"
