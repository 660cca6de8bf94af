"""Errors of who drives a job, and of its journal."""

from penstock.errors.base import PenstockError


class FencedError(PenstockError):
    """Another driver has taken over the job; this one must write nothing more."""

    def __init__(self, job: str, attempt: str, by_attempt: str) -> None:
        super().__init__(job, attempt, by_attempt)
        self.job = job
        self.attempt = attempt
        self.by_attempt = by_attempt

    def __str__(self) -> str:
        if self.attempt == self.by_attempt:
            what = f"another driver was first to start attempt {self.attempt}"
        else:
            what = f"another driver took over with attempt {self.by_attempt}"
        return (
            f"job {self.job!r}: {what}, so this driver (attempt {self.attempt}) stops; "
            "nothing is lost: the other one goes on from the last checkpoint"
        )


class CorruptJournalError(PenstockError):
    """An entry of a job's journal is missing or damaged in a way no crash can explain."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"journal entry {self.path} cannot be used: {self.reason}; put back a good copy, or "
            "start the job under another id from one of its checkpoints or savepoints"
        )


class UnknownJobError(PenstockError):
    """A directory of checkpoints holds no job of this name or id."""

    def __init__(self, directory: str, wanted: str, known: tuple[str, ...]) -> None:
        super().__init__(directory, wanted, known)
        self.directory = directory
        self.wanted = wanted
        self.known = known

    def __str__(self) -> str:
        there = f"it has {', '.join(self.known)}" if self.known else "it has none at all"
        return (
            f"no job {self.wanted!r} in {self.directory}: {there}; "
            "give one of these, or the checkpoint directory the job runs with"
        )


class AmbiguousJobError(PenstockError):
    """A name fits several jobs."""

    def __init__(self, directory: str, wanted: str, fitting: tuple[str, ...]) -> None:
        super().__init__(directory, wanted, fitting)
        self.directory = directory
        self.wanted = wanted
        self.fitting = fitting

    def __str__(self) -> str:
        return (
            f"several jobs in {self.directory} are named {self.wanted!r}; "
            f"give the id of one: {', '.join(self.fitting)}"
        )


class JobAlreadyRunningError(PenstockError):
    """Another driver runs the job right now."""

    def __init__(self, job: str, host: str, pid: int, since: str) -> None:
        super().__init__(job, host, pid, since)
        self.job = job
        self.host = host
        self.pid = pid
        self.since = since

    def __str__(self) -> str:
        return (
            f"job {self.job!r} already runs: process {self.pid} on {self.host} was heard of at "
            f"{self.since}; cancel or stop it first, or run this program under another job id"
        )
