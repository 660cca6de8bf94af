"""Keeps the results of ended jobs dirty until this process exits.

A job may end long before its process does: the program may run another job, or work on the output.
If the process is killed meanwhile, what started it (Kubernetes, systemd, cron, a supervisor) starts
the same command again, which must not run the job a second time.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import multiprocessing
import multiprocessing.util
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import (
    DriverProcess,
    JobEnded,
    JournalState,
    ResultClean,
)
from penstock.common.storage_url import Location
from penstock.errors import JobCancelledError, PenstockError
from penstock.job.context import JobContext
from penstock.recovery.ended_jobs import end_to_report, refuse_stopped
from penstock.recovery.lease import is_running_here, machine_id, process_start_time
from penstock.storage.storages import storage_at

logger = logging.getLogger("penstock.job")

_executions: Counter[Location] = Counter()
_dirty: dict[Location, Journal] = {}
_watched_exits: set[int] = set()


def count_execution(job_dir: Location) -> int:
    """Return the number of the execution of a job that begins in this process."""
    _executions[job_dir] += 1
    return _executions[job_dir]


def this_driver(execution: int) -> DriverProcess:
    """Return this process as the one that has to report the end of a job."""
    pid = os.getpid()
    return DriverProcess(
        socket.gethostname(),
        machine_id(),
        pid,
        process_start_time(pid) or 0,
        command_digest(),
        execution,
    )


def command_digest() -> str:
    """Return what tells this process's program, arguments and options from others."""
    program = str(Path(sys.argv[0]).resolve()) if sys.argv[0] else ""
    words = "\0".join([program, *sys.argv[1:], *sys.orig_argv])
    return hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def unreported_end(
    context: JobContext, state: JournalState, execution: int, *, is_hung: bool
) -> JobEnded | None:
    """Return the end of the job that this start has to report, None if it has to run the job.

    Raises:
        StoppedJobError: the job was stopped with a savepoint, and would start from scratch.
    """
    given, fresh = context.checkpoints.restore_path, context.fresh
    ended = end_to_report(
        state,
        given=given,
        fresh=fresh,
        command=command_digest(),
        execution=execution,
        is_running=lambda d: not is_hung and is_running_here(d.host, d.machine, d.pid, d.started),
    )
    if ended is None:
        name, program = context.plan.job_name, context.program.program
        refuse_stopped(state, name, program, given=given, fresh=fresh)
    return ended


def notices_exit() -> bool:
    """Whether this process notices when it exits by itself, as results need to become clean.

    Not one that was forked by something else than `multiprocessing`: it may end without any exit
    function, and the next one has the same command.
    """
    if multiprocessing.parent_process() is not None:
        return True
    try:
        own, parent = (
            Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (os.getpid(), os.getppid())
        )
    except OSError:
        return True
    return own != parent


def clean_at_exit(job_dir: Location, journal: Journal) -> None:
    """Mark the result of the journal's attempt as clean when this process exits by itself."""
    _dirty[job_dir] = journal
    if multiprocessing.parent_process() is not None and os.getpid() not in _watched_exits:
        # A process of `multiprocessing` does not call the functions of atexit.
        _watched_exits.add(os.getpid())
        multiprocessing.util.Finalize(None, _mark_clean, exitpriority=0)


@contextmanager
def reporting_results() -> Iterator[None]:
    """Leave results dirty if another job fails or the program is interrupted.

    Then it is to be started again. A program that ends by itself in another way has ended, with
    whatever exit code: the same command is a new run.
    """
    try:
        yield
    except (PenstockError, KeyboardInterrupt) as error:
        if not isinstance(error, JobCancelledError):
            _dirty.clear()
        raise


# Registered before anything that takes time at the exit, so it runs after that.
@atexit.register
def _mark_clean() -> None:
    while _dirty:
        job_dir, journal = _dirty.popitem()
        try:
            if storage_at(job_dir).children(""):
                journal.append(ResultClean(journal.attempt or "", time.time()))
        except (OSError, PenstockError) as error:
            # For example, another driver has started the job meanwhile.
            logger.debug("The result of the job in %s stays dirty: %s", job_dir, error)
