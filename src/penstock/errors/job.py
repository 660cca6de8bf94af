"""Errors of programs and of the steps they consist of."""

from typing import Any

from penstock.errors.base import MethodCall, PenstockError


class UnexpectedPickleError(PenstockError):
    """Pickled bytes were found where a type is declared; they were not loaded."""

    type_info: object
    is_permanent = True
    template = (
        "a record of the declared type {type_info} is pickled, which this job never does: it was "
        "not loaded; find out who else writes to the directories of the job"
    )


class TypeMismatchError(PenstockError):
    """A value does not match the type declared for it.

    ``path`` names the place inside the record (``"f1.amount"``); it is empty for the record itself.
    """

    path: str
    value: object
    type_info: Any
    is_permanent = True

    def __str__(self) -> str:
        where = f"field {self.path!r}" if self.path else "the record"
        return f"{where} does not match its declared type {self.type_info!r}; got {self.value}"


class InvalidJobError(PenstockError):
    """A program cannot be run as it is written; the message says what to change."""

    is_permanent = True


class UnknownChannelError(PenstockError):
    """A channel was requested that the job does not have; ``known`` are the ones it has."""

    channel: str | int
    known: list[str]

    def __str__(self) -> str:
        there = f"it has {', '.join(map(repr, self.known))}" if self.known else "it has none"
        return f"the job has no channel {self.channel!r}: {there}"


class DuplicateUidError(InvalidJobError):
    """Two steps of one job have the same uid."""

    uid: str
    first: str
    second: str
    template = "uid {uid!r} is used twice: at {first} and at {second}; every step needs its own uid"


class UnserializableFunctionError(InvalidJobError):
    """A function cannot be sent to the tasks because of something it captures."""

    step: str
    captured: str
    reason: str
    template = (
        "step {step!r} cannot be sent to the tasks: it captures {captured} ({reason}); create it "
        "in open() instead"
    )


class UserFunctionError(PenstockError):
    """A user function raised an exception; ``user_traceback`` holds only the user's own frames."""

    step: str
    record: object
    cause: str
    user_traceback: str
    fingerprint: str = ""

    def __str__(self) -> str:
        traceback = self.user_traceback.rstrip()
        return f"step {self.step!r} failed {_place(self.record)}: {self.cause}\n{traceback}"


class StepError(PenstockError):
    """A step failed inside penstock, not in the user's function; names the step and the record.

    ``call_site`` is the line of the program that created the step, if it is known.
    """

    step: str
    record: object
    cause: str
    call_site: str = ""
    is_permanent: bool = False
    fingerprint: str = ""

    def __str__(self) -> str:
        where = f"; the step is at {self.call_site}" if self.call_site else ""
        return f"step {self.step!r} stopped {_place(self.record)}: {self.cause}{where}"


def _place(record: object) -> str:
    return f"in {record}" if isinstance(record, MethodCall) else f"on record {record}"


class MicroBatchFailedError(PenstockError):
    """A micro-batch failed in every try."""

    stage: str
    batch: int
    tries: int
    cause: str
    template = (
        "stage {stage!r}: micro-batch {batch} failed in all {tries} tries; look into the logs of "
        "Spark's executors; the last error: {cause}"
    )


class CorruptSegmentError(PenstockError):
    """A channel segment is not what its producer wrote."""

    path: str
    reason: str
    template = (
        "channel segment {path} cannot be read: {reason}; the next attempt writes it again from "
        "the last checkpoint"
    )


class JobCancelledError(PenstockError):
    """The job was cancelled before it finished."""

    job_name: str
    template = "job {job_name!r} was cancelled"
