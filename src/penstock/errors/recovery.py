"""Errors of job ownership, of finding a job, and of its journal."""

from penstock.errors.base import PenstockError


class FencedError(PenstockError):
    """Another driver has taken over the job; this one must not write anything more."""

    job: str
    attempt: str
    by_attempt: str
    is_permanent = True

    def __str__(self) -> str:
        if self.attempt == self.by_attempt:
            what = f"another driver started attempt {self.attempt} first"
        else:
            what = f"another driver took over with attempt {self.by_attempt}"
        return (
            f"job {self.job!r}: {what}, so this driver (attempt {self.attempt}) stops; nothing is "
            "lost: the other driver resumes from the last checkpoint"
        )


class CorruptJournalError(PenstockError):
    """An entry of a job's journal is missing or damaged in a way no crash can explain."""

    path: str
    reason: str
    template = (
        "journal entry {path} cannot be used: {reason}; put back a good copy, or start the job "
        "under another id from one of its checkpoints or savepoints"
    )


class UnknownJobError(PenstockError):
    """A checkpoint directory holds no job with this name or id."""

    directory: str
    wanted: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        there = f"it has {', '.join(self.known)}" if self.known else "it has none at all"
        return (
            f"no job {self.wanted!r} in {self.directory}: {there}; give one of these, or the "
            "checkpoint directory that the job runs with"
        )


class AmbiguousJobError(PenstockError):
    """Several jobs have the same name."""

    directory: str
    wanted: str
    fitting: tuple[str, ...]
    template = "several jobs in {directory} are named {wanted!r}; give the id of one: {fitting}"


class JobAlreadyRunningError(PenstockError):
    """Another driver is running the job."""

    job: str
    host: str
    pid: int
    since: str
    template = (
        "job {job!r} is already running: the last heartbeat of process {pid} on {host} was at "
        "{since}; cancel or stop it first, or give this program its own id with --job-id"
    )


class DifferentProgramError(PenstockError):
    """The newest checkpoint of a job does not match the program: it is that of another one."""

    job: str
    program: str
    mismatch: str
    template = (
        "job {job!r} was last run by another program, {program}, and cannot be resumed by this "
        "one: {mismatch}. If this is another job, give it its own id with --job-id, or start it "
        "from scratch with --fresh"
    )


class StoppedJobError(PenstockError):
    """A job that was stopped with a savepoint was started without saying from where."""

    job: str
    resume: str
    from_scratch: str
    template = (
        "job {job!r} was stopped with a savepoint: from scratch it would read its input again and "
        "emit its output twice. Use one of these, with your other options and arguments:\n"
        "  {resume}\n"
        "  {from_scratch}\n"
        "or set execution.state-recovery.path, or penstock.recovery.fresh to true. Another program "
        "needs its own id: --job-id"
    )
