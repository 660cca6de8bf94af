"""The process of a submitted job: claims a start, then supervises the drivers of `penstock run`.

It needs nothing of the server, which may end, be killed and be started again meanwhile. Whoever
starts it may do so twice: the second process finds that the start is claimed, and ends.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from penstock.common.config.checkpoint_options import FRESH, RESTORE_PATH
from penstock.common.config.configuration_file import global_configuration, load_configuration
from penstock.common.config.known_options import overlay
from penstock.errors import PenstockError
from penstock.recovery.lease import machine_id, process_start_time
from penstock.recovery.supervisor import Supervisor
from penstock.redaction import redact
from penstock.serve.submission.logs.trimmer import trimming
from penstock.serve.submission.records import StartDir, StartEnd, StartProcess, SubmissionDir

_FAILED = 1


def main(directory: Path, number: int, max_log_bytes: int) -> int:
    """Run the start with a number, unless it has a process; return the exit code."""
    job = SubmissionDir(directory)
    start = job.start(number)
    pid = os.getpid()
    started = process_start_time(pid) or 0
    own = StartProcess(socket.gethostname(), machine_id(), pid, started, time.time())
    if not start.claim(own):
        return 0
    code = _FAILED
    try:
        with trimming(start.log, max_log_bytes):
            configuration = global_configuration()
            overlay(configuration, load_configuration(job.settings))
            code = Supervisor.configured(driver_command(job, start), configuration).run()
    except PenstockError as error:
        print(f"Error: {redact(str(error))}", file=sys.stderr)
    except Exception:
        print(redact(traceback.format_exc()), file=sys.stderr)
    finally:
        start.write_end(StartEnd(code, time.time()))
    return code


def driver_command(job: SubmissionDir, start: StartDir) -> Sequence[str]:
    """Return the command of the driver; settings and arguments are in files that are not public.

    It is the same for every driver of a start: the journal says where the job resumes.
    """
    submission, request = job.read(), start.request
    if submission is None or request is None:
        message = f"the record of job {job.job} is damaged: submit the program again"
        raise PenstockError(message)
    options = ["-c", str(job.settings), "--args-file", str(job.arguments)]
    if request.restore_path is not None:
        options += ["-D", f"{RESTORE_PATH.key}={request.restore_path}"]
    if request.fresh:
        options += ["-D", f"{FRESH.key}=true"]
    program = str(job.program / submission.entry)
    # Unbuffered: what a program prints is in the log at once, and stays if it is killed.
    command = [sys.executable, "-u", "-m", "penstock.cli.main", "run"]
    return [*command, *options, "--", program]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
