"""What a server has of submissions, with programs for it; its jobs are real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from penstock.recovery.control import Control, Stop
from penstock.serve.submission.records import SubmissionDir
from penstock.serve.submission.run_request import JobSpec, RunRequest, job_spec
from penstock.serve.submission.settings import SubmissionSettings
from penstock.serve.submission.submissions import Submissions
from tests.unit.cli.job_fixtures import COUNT
from tests.unit.support import eventually

SHOW = """
import json, os, sys
from penstock.datastream import StreamExecutionEnvironment
from penstock.testing.inline import run_inline
env = run_inline(StreamExecutionEnvironment.get_execution_environment())
seen = {
    "argv": sys.argv[1:],
    "cmdline": open("/proc/self/cmdline").read() + open(f"/proc/{os.getppid()}/cmdline").read(),
    "cwd": os.getcwd(),
    "sid": os.getsid(0),
    "stdin": os.readlink("/proc/self/fd/0"),
    "secret": env._configuration.get("penstock.storage.s3.secret_access_key"),
    "token": os.environ.get("PENSTOCK_SERVE_TOKEN"),
}
open("seen.json", "w").write(json.dumps(seen))
print("seen", flush=True)
env.from_collection([1]).print()
env.execute("show")
"""


class Server:
    """What a server has of submissions, and its jobs that still run at the end of a test."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.root = root
        self.submissions = Submissions(
            SubmissionSettings(
                directory=root / "checkpoints",
                upload_dir=root / "uploads",
                heartbeat_timeout_s=50,
                max_program_bytes=1 << 20,
                max_log_bytes=1 << 20,
                retained_starts=settings.pop("retained_starts", 3),
                start_timeout_s=60,
                **settings,
            )
        )
        self.recovered = self.submissions.recover()

    def run(self, program: str | bytes, name: str = "job.py", **fields: Any) -> SubmissionDir:
        """Submit a program, and wait until it has become a job."""
        data = program.encode() if isinstance(program, str) else program
        spec = self.spec(**fields)
        added = self.submissions.programs.add(name, [data])
        start = self.submissions.submit(added, spec, fields.get("entryClass"))
        job = self.submissions.find(spec.job)
        self.submissions.await_job(job, start)
        return job

    def spec(self, **fields: Any) -> JobSpec:
        request = RunRequest.parse(msgspec.json.encode(fields))
        return job_spec(request, self.root / "checkpoints", {})

    def count(self, numbers: int, pause: float, **fields: Any) -> SubmissionDir:
        arguments = [str(self.root / "out"), str(numbers), str(pause)]
        small = {"penstock.micro-batch.max-records": "20"}
        return self.run(COUNT, programArgsList=arguments, flinkConfiguration=small, **fields)

    def await_end(self, job: SubmissionDir) -> int | None:
        eventually(lambda: not self.submissions.is_running(job))
        return self.submissions.status(job).code

    def log(self, job: SubmissionDir) -> str:
        logs = self.submissions.logs(job.job)
        return logs.read(job.starts[-1].log, 0).text

    def stop(self, job: SubmissionDir) -> str:
        control = Control(self.submissions.job_dir(job.job))
        request = control.submit(Stop(path=str(self.root / "savepoints")))
        eventually(lambda: control.answer(request) is not None)
        answer = control.answer(request)
        assert answer is not None
        assert answer.ok, answer.message
        assert self.await_end(job) == 0
        return str(answer.path)


@contextmanager
def serving(root: Path, **settings: Any) -> Iterator[Server]:
    server = Server(root, **settings)
    try:
        yield server
    finally:
        server.submissions.close()


def counted(root: Path) -> list[str]:
    """Return what `Server.count` has written."""
    files = sorted((root / "out").rglob("part*"))
    return [line for file in files for line in file.read_text().splitlines()]


def kill_jobs(root: Path) -> None:
    """Kill the processes of all submitted jobs."""
    for directory in (root / "uploads").glob("jobs/*"):
        for start in SubmissionDir(directory).starts:
            if (process := start.process) is not None:
                kill_session(process.pid)


def kill_session(leader: int) -> None:
    for path in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if os.getsid(int(path.name)) == leader:
                os.kill(int(path.name), signal.SIGKILL)
