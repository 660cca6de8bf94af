"""The jobs that were submitted to a server: their records on disk, their processes, their logs."""

from __future__ import annotations

import logging
import os
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from penstock.checkpoint.storage.job_dir import JobDir, is_job
from penstock.checkpoint.storage.journal import Journal
from penstock.errors import (
    DuplicateJobSubmissionError,
    ProcessNotStartedError,
    ProgramFailedError,
    RestartRefusedError,
    UnknownSubmissionError,
)
from penstock.ids import JobKey
from penstock.recovery.lease import Alive, driver_status
from penstock.redaction import redact, redact_arguments, redact_value
from penstock.serve.submission.logs.job_logs import JobLogs
from penstock.serve.submission.orphans import drivers_left_by
from penstock.serve.submission.processes import Processes, terminate
from penstock.serve.submission.programs.store import STAGED, Program, ProgramStore
from penstock.serve.submission.records import (
    StartDir,
    StartEnd,
    StartRequest,
    Submission,
    SubmissionDir,
)
from penstock.serve.submission.restarts import decide_restart
from penstock.serve.submission.run_request import JobSpec
from penstock.serve.submission.settings import SubmissionSettings
from penstock.serve.submission.start_status import ProcessStatus, StartStatus, status_of
from penstock.serve.submission.upload_directory import lock, prepare

logger = logging.getLogger("penstock.serve")

_JOB = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_OWNER_ONLY = 0o700
_POLL_S = 0.05
_LOG_LINES = 30
_FAILED = 1
_RUNNING = "it is running: stop, cancel or suspend it first"


class Submissions:
    """All submitted jobs; any thread may call.

    The record of a job is on disk before its process is started, and the process claims its start
    before it does anything. So a server that is killed between the two forgets no job: the next one
    starts what has no process. And it starts none twice: only one process can claim a start.
    """

    def __init__(self, settings: SubmissionSettings) -> None:
        """Prepare the directories.

        Raises:
            ServerAlreadyRunningError: another server uses them.
            UnusableDirectoryError: they cannot be created, or belong to another user.
        """
        self.settings = settings
        root = settings.upload_dir
        self._jobs = root / "jobs"
        prepare(root)
        self._lock_file = lock(root)
        for directory in (self._jobs, root / "programs"):
            directory.mkdir(_OWNER_ONLY, exist_ok=True)
        self.programs = ProgramStore(root / "programs", settings.max_program_bytes)
        self._processes = Processes(settings.max_log_bytes)
        self._lock = threading.Lock()
        """Held while a job is added, started again or deleted."""

    def recover(self) -> list[str]:
        """Start what a killed server has accepted and not started; return the ids of these jobs."""
        self.programs.delete_unfinished()
        for path in self._jobs.glob(f"{STAGED}*"):
            shutil.rmtree(path, ignore_errors=True)
        started = []
        for job in self.jobs():
            try:
                if self._recover(job):
                    started.append(job.job)
            except Exception as error:
                # The others are not less important.
                reason = redact(f"{type(error).__name__}: {error}")
                logger.error("job %s was submitted and cannot be started: %s", job.job, reason)
        return started

    def _recover(self, job: SubmissionDir) -> bool:
        """Start a job that was accepted and not started; return whether it was one."""
        last = job.starts[-1:]
        if not last or status_of(last[0]).status is not ProcessStatus.STARTING:
            return False
        logger.warning("job %s was submitted and not started: it is started now", job.job)
        try:
            self._processes.start(job, last[0])
        except Exception:
            # It does not start later by itself, and can be deleted.
            last[0].write_end(StartEnd(_FAILED, time.time()))
            raise
        return True

    def close(self) -> None:
        """Let another server use the directories; the jobs go on."""
        os.close(self._lock_file)

    def jobs(self) -> list[SubmissionDir]:
        """Return all submitted jobs, by id."""
        self._processes.reap()
        found = (path for path in self._jobs.iterdir() if _JOB.fullmatch(path.name))
        names = sorted(path.name for path in found if path.is_dir())
        return [SubmissionDir(self._jobs / name) for name in names]

    def find(self, job: str) -> SubmissionDir:
        """Return a submitted job.

        Raises:
            UnknownSubmissionError: no job with this id was submitted here.
        """
        path = self._jobs / job if _JOB.fullmatch(job) else None
        if path is None or not path.is_dir():
            raise UnknownSubmissionError(job)
        return SubmissionDir(path)

    def logs(self, job: str) -> JobLogs:
        """Return the logs of a submitted job; raises like `find`."""
        return JobLogs(self.find(job))

    def status(self, job: SubmissionDir) -> StartStatus:
        """Return the status of the newest start of a job."""
        starts = job.starts
        return self._status(starts[-1]) if starts else StartStatus(ProcessStatus.LOST)

    def submit(self, program: Program, spec: JobSpec, entry: str | None = None) -> StartDir:
        """Store a job and start its process; return its first start.

        Raises:
            DuplicateJobSubmissionError: a job with this id exists or existed.
            InvalidProgramError: the program has no such entry.
            ProcessNotStartedError: the system does not start its process; nothing is stored.
        """
        now = time.time()
        staged = SubmissionDir(self._jobs / f"{STAGED}{uuid.uuid4()}")
        try:
            staged.path.mkdir(_OWNER_ONLY)
            file = self.programs.copy_to(program, staged.program, entry)
            settings = dict(spec.settings)
            if program.is_archive:
                _add_python_files(settings, self._jobs / spec.job / "program")
            submission = Submission(
                job=spec.job,
                program=program.id,
                entry=str(file.relative_to(staged.program)),
                submitted=now,
                args=redact_arguments(spec.arguments),
                settings=redact_value(settings),
            )
            staged.fill(submission, settings, spec.arguments)
            request = StartRequest(now, spec.restore_path, spec.fresh, uuid.uuid4().hex)
            staged.start(1).write_request(request)
            with self._lock:
                self._make_free(spec.job)
                # From here on the job exists: if the server dies, the next one starts it.
                job = staged.give_name(self._jobs / spec.job)
        except FileExistsError as error:
            raise DuplicateJobSubmissionError(spec.job) from error
        finally:
            shutil.rmtree(staged.path, ignore_errors=True)
        start = job.start(1)
        try:
            self._processes.start(job, start)
        except ProcessNotStartedError:
            self._delete(job)
            raise
        logger.info("job %s is submitted: program %s", job.job, program.id)
        return start

    def restart(self, job: SubmissionDir, *, path: str | None, fresh: bool) -> StartDir:
        """Start a job again that has ended or died; return the new start.

        Raises:
            RestartRefusedError: it runs, or has left nothing to start from.
            UnknownSubmissionError: it was deleted meanwhile.
            ProcessNotStartedError: the system does not start its process.
        """
        with self._lock:
            if not job.exists:
                raise UnknownSubmissionError(job.job)
            starts = self._starts_of_ended(job)
            directory = self.job_dir(job.job)
            state = Journal(directory.storage, directory.key).state()
            last = starts[-1] if starts else None
            request = None if last is None else last.request
            restore = decide_restart(directory, state, request, path=path, fresh=fresh)
            start = job.start(1 if last is None else last.number + 1)
            new = StartRequest(time.time(), restore.path, restore.fresh, uuid.uuid4().hex)
            start.write_request(new)
            try:
                self._processes.start(job, start)
            except ProcessNotStartedError:
                shutil.rmtree(start.path, ignore_errors=True)
                raise
            for old in [*starts, start][: -self.settings.retained_starts]:
                shutil.rmtree(old.path, ignore_errors=True)
        logger.info("job %s is started again: start %d", job.job, start.number)
        return start

    def suspend(self, job: SubmissionDir) -> bool:
        """End the process of a job between micro-batches; False if it has none.

        Also the drivers end that a killed one has left.
        """
        status = self.status(job)
        if status.process is None or (status.is_over and not _has_left_drivers(status)):
            return False
        terminate(status.process)
        return True

    def delete(self, job: SubmissionDir) -> None:
        """Delete the record, the program and the logs of a job; its checkpoints stay.

        Raises:
            RestartRefusedError: it runs.
            UnknownSubmissionError: it was deleted meanwhile.
        """
        with self._lock:
            self._starts_of_ended(job)
            self._delete(job)

    def _starts_of_ended(self, job: SubmissionDir) -> list[StartDir]:
        """Return the starts of a job that does not run; the caller holds the lock.

        Raises:
            RestartRefusedError: it runs.
            UnknownSubmissionError: it was deleted meanwhile.
        """
        starts = job.starts
        if not job.exists and not starts:
            raise UnknownSubmissionError(job.job)
        if self.is_running(job):
            raise RestartRefusedError(job.job, _RUNNING)
        return starts

    def is_running(self, job: SubmissionDir) -> bool:
        """Whether a process of the job exists, or will exist soon.

        Also a driver counts whose supervisor was killed, even before it has a lease.
        """
        status = self.status(job)
        if not status.is_over or _has_left_drivers(status):
            return True
        directory, timeout_s = self.job_dir(job.job), self.settings.heartbeat_timeout_s
        return isinstance(driver_status(directory, timeout_s, time.time()), Alive)

    def job_dir(self, job: str) -> JobDir:
        """Return the directory of a job's checkpoints."""
        return JobDir(self.settings.directory, JobKey(job), self.settings.storage_options)

    def await_job(
        self, job: SubmissionDir, start: StartDir, pause: Callable[[float], None] = time.sleep
    ) -> None:
        """Wait until a start has become a job, or for as long as the settings say.

        Raises:
            ProgramFailedError: the program has ended without starting a job.
        """
        deadline = time.monotonic() + self.settings.start_timeout_s
        while time.monotonic() < deadline:
            # In this order: a short job may start and end between the two looks.
            status = self._status(start)
            if self._has_attempt(job, start):
                return
            if status.is_over:
                raise ProgramFailedError(job.job, _how(status), self._tail(job, start))
            pause(_POLL_S)

    def _has_attempt(self, job: SubmissionDir, start: StartDir) -> bool:
        directory, request = self.job_dir(job.job), start.request
        if request is None or not is_job(directory):
            return False
        attempts = Journal(directory.storage, directory.key).state().attempts
        return any(attempt.time >= request.time for attempt in attempts)

    def _status(self, start: StartDir) -> StartStatus:
        self._processes.reap()
        return status_of(start)

    def _make_free(self, job: str) -> None:
        """Delete the record of a program that failed before it had a job of this id.

        Raises:
            DuplicateJobSubmissionError: there is or was such a job.
        """
        if is_job(self.job_dir(job)):
            raise DuplicateJobSubmissionError(job)
        with suppress(UnknownSubmissionError):
            before = self.find(job)
            if self.is_running(before):
                raise DuplicateJobSubmissionError(job)
            self._delete(before)

    def _delete(self, job: SubmissionDir) -> None:
        # Out of sight first, in one step.
        hidden = self._jobs / f"{STAGED}{uuid.uuid4()}"
        with self._processes.lock:
            job.path.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)

    def _tail(self, job: SubmissionDir, start: StartDir) -> str:
        with suppress(FileNotFoundError):
            return JobLogs(job).tail(start.log, _LOG_LINES)
        return ""


def _has_left_drivers(status: StartStatus) -> bool:
    is_lost = status.status is ProcessStatus.LOST
    return is_lost and status.process is not None and bool(drivers_left_by(status.process))


def _how(status: StartStatus) -> str:
    if status.status is ProcessStatus.LOST:
        return "was killed before it had started a job"
    if status.code == 0:
        return "has ended without starting a job: it never calls execute()"
    return f"has failed before it had started a job, with exit code {status.code}"


def _add_python_files(settings: dict[str, str], program: Path) -> None:
    """Let Spark's workers import the modules of an archive."""
    key = "python.files"
    settings[key] = ",".join(filter(None, (settings.get(key), str(program))))
