"""Errors of savepoints that are written from rows."""

from penstock.errors.base import PenstockError, plural


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
