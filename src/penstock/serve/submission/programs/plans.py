"""The plan of an uploaded program: `penstock explain` in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from penstock.common.job_id import JobID
from penstock.common.new_files import create_file
from penstock.errors import PlanFailedError
from penstock.redaction import redact
from penstock.serve.jobs.hex_ids import hex_id
from penstock.serve.submission.processes import environment_of_jobs
from penstock.serve.submission.programs.store import STAGED, Program, ProgramStore

_OWNER_ONLY = 0o600
_TIMEOUT_S = 60.0
_POLL_S = 0.05
_LONGEST_REASON = 4000
_LONGEST_OUTPUT = 16 << 20


class ExplainedOperator(msgspec.Struct, frozen=True):
    """An operator, as `penstock explain --json` prints it."""

    name: str
    uid: str
    description: str | None = None


class ExplainedStage(msgspec.Struct, frozen=True):
    """A stage."""

    id: int
    name: str
    parallelism: int
    operators: list[ExplainedOperator]


class ExplainedChannel(msgspec.Struct, frozen=True):
    """A channel between two stages."""

    from_stage: int
    to_stage: int
    exchange: str


class ExplainedPlan(msgspec.Struct, frozen=True):
    """A plan."""

    job: str
    stages: list[ExplainedStage]
    channels: list[ExplainedChannel]


def explain(
    programs: ProgramStore,
    program: Program,
    arguments: Sequence[str],
    entry: str | None,
    timeout_s: float = _TIMEOUT_S,
) -> dict[str, Any]:
    """Return the plan of the first job of a program in Flink's JSON; the program runs for that.

    Raises:
        PlanFailedError: it fails, makes no job, or takes too long.
        InvalidProgramError: it has no such entry.
    """
    directory = programs.scratch / f"{STAGED}{uuid.uuid4()}"
    try:
        directory.mkdir(0o700)
        file = programs.copy_to(program, directory / "program", entry)
        arguments_file = directory / "arguments.json"
        with create_file(arguments_file) as opened:
            arguments_file.chmod(_OWNER_ONLY)
            opened.write(msgspec.json.encode(list(arguments)))
        options = ["--json", "--args-file", str(arguments_file)]
        command = [sys.executable, "-m", "penstock.cli.main", "explain", *options, "--", str(file)]
        output = _output_of(command, directory, program.name, timeout_s)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    try:
        # What the program itself prints comes first.
        plans = msgspec.json.decode(_last_array(output), type=list[ExplainedPlan])
    except msgspec.DecodeError as error:
        reason = f"the program prints what hides it: {error}"
        raise PlanFailedError(program.name, reason) from error
    return flink_plan(plans[0])


def flink_plan(plan: ExplainedPlan) -> dict[str, Any]:
    """Return a plan in Flink's JSON."""
    ids = {stage.id: hex_id(stage.operators[0].uid) for stage in plan.stages}
    return {
        "jid": str(JobID.derived_from(plan.job)),
        "name": plan.job,
        "type": "STREAMING",
        "nodes": [
            {
                "id": ids[stage.id],
                "parallelism": stage.parallelism,
                "operator": "",
                "operator_strategy": "",
                "description": stage.name,
                "inputs": [
                    {
                        "num": number,
                        "id": ids[channel.from_stage],
                        "ship_strategy": channel.exchange.upper(),
                        "exchange": "pipelined_bounded",
                    }
                    for number, channel in enumerate(
                        c for c in plan.channels if c.to_stage == stage.id
                    )
                ],
                "optimizer_properties": {},
            }
            for stage in plan.stages
        ],
    }


def _last_array(output: bytes) -> bytes:
    """Return the array that `penstock explain` prints: it begins a line, and nothing follows."""
    at = output.rfind(b"\n[\n")
    return output if at < 0 else output[at + 1 :]


def _output_of(command: Sequence[str], directory: Path, name: str, timeout_s: float) -> bytes:
    with tempfile.TemporaryFile(dir=directory) as out, tempfile.TemporaryFile(dir=directory) as err:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment_of_jobs(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        deadline, how = time.monotonic() + timeout_s, os.WEXITED | os.WNOWAIT | os.WNOHANG
        is_long = False
        while (ended := os.waitid(os.P_PID, process.pid, how)) is None:
            is_long = any(os.fstat(f.fileno()).st_size > _LONGEST_OUTPUT for f in (out, err))
            if is_long or time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        # With what the program has started; not reaped yet, so the pid has not been used again.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        if code == 0:
            out.seek(max(0, os.fstat(out.fileno()).st_size - _LONGEST_OUTPUT))
            return out.read(_LONGEST_OUTPUT)
        err.seek(max(0, os.fstat(err.fileno()).st_size - _LONGEST_REASON))
        said = redact(err.read().decode(errors="replace").strip())
    if is_long:
        why = f"it prints more than {_LONGEST_OUTPUT >> 20} MB"
    elif ended is None:
        why = f"it takes longer than {timeout_s:.0f} s"
    else:
        why = said or f"exit code {code}"
    raise PlanFailedError(name, why)
