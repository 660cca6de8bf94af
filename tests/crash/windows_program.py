"""The job that is killed: `python -m tests.crash.windows_program SHAPE.json` runs it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.datastream import StreamExecutionEnvironment
from tests.crash import broadcast_steps as ruled
from tests.crash import timer_steps as alarms
from tests.crash import window_steps as windowed
from tests.crash.job_shape import JOB, Shape, environment, files

PARTS = {"windows": windowed, "timers": alarms, "rules": ruled}


def build(shape: Shape) -> StreamExecutionEnvironment:
    env = environment(shape)
    first, *others = (PARTS[part].build(env, shape) for part in shape.parts)
    (first.union(*others) if others else first).sink_to(files(shape)).uid("files")
    return env


def faults(shape: Shape, lines: Sequence[str]) -> list[str]:
    """Say what is wrong with the output of a job that has ended; nothing, if it is exact."""
    return [fault for part in shape.parts for fault in PARTS[part].faults(shape.records, lines)]


def main(path: Path) -> int:
    build(msgspec.json.decode(path.read_bytes(), type=Shape)).execute(JOB)
    print("finished")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
