"""Record what the programs print under PyFlink: ``python -m tests.parity.record PYTHON [NAME...]``.

PYTHON is an interpreter that has PyFlink 2.3 installed. Each program runs in a process of its own
and its lines go to ``expected/NAME.txt``, sorted, without subtask prefixes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.parity.parity_common import (
    EXPECTED,
    expected_path,
    normalise,
    program_names,
    program_path,
    write_input,
)

# Programs run in PyFlink's thread mode, except these, which run in process mode:
PROCESS_MODE = {
    # in thread mode an Instant and a primitive array made by a function are refused (2.3.0)
    "13_print_types",
    # and a list of tuples repeats its last tuple
    "14_print_nested",
    # in thread mode most methods of the runtime context raise AttributeError (2.3.0)
    "18_context_collect",
    # in thread mode keys(), values() and is_empty() of a broadcast state raise AttributeError
    "25_broadcast_state",
    "26_broadcast_process",
}

# Sets the execution mode for every environment that a program makes, then runs the program.
BOOTSTRAP = """
import runpy, sys
from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
mode, program = sys.argv[1:3]
original = StreamExecutionEnvironment.get_execution_environment
def get_execution_environment(configuration=None):
    configuration = configuration or Configuration()
    configuration.set_string("python.execution-mode", mode)
    configuration.set_string("python.executable", sys.executable)
    return original(configuration)
StreamExecutionEnvironment.get_execution_environment = staticmethod(get_execution_environment)
sys.argv = sys.argv[2:]
runpy.run_path(program, run_name="__main__")
"""

NOISE = ("WARNING", "SLF4J", "log4j:", "ERROR StatusLogger", "OpenJDK ", "Picked up ")


def site_packages(python: str) -> str:
    """Where PYTHON keeps its packages: the interpreter inside the JVM must be told."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def record(python: str, packages: str, name: str) -> list[str]:
    """Run one program under PyFlink and return its normalised lines."""
    mode = "process" if name in PROCESS_MODE else "thread"
    with tempfile.TemporaryDirectory() as directory:
        lines = write_input(Path(directory))
        done = subprocess.run(
            [python, "-c", BOOTSTRAP, mode, str(program_path(name)), str(lines)],
            capture_output=True,
            text=True,
            check=False,
            cwd=directory,
            env={**os.environ, "PYTHONPATH": packages, "TZ": "UTC", "PYTHONHASHSEED": "0"},
            timeout=300,
        )
    if done.returncode != 0:
        message = f"{name} failed under PyFlink:\n{done.stdout}\n{done.stderr}"
        raise RuntimeError(message)
    return [line for line in normalise(done.stdout) if not line.startswith(NOISE)]


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__)
        return 2
    python, *wanted = arguments
    packages = site_packages(python)
    EXPECTED.mkdir(exist_ok=True)
    failed = 0
    for name in wanted or program_names():
        try:
            lines = record(python, packages, name)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(error, file=sys.stderr)
            failed += 1
            continue
        text = "".join(f"{line}\n" for line in lines)
        expected_path(name).write_text(text, encoding="utf-8")
        print(f"{name}: {len(lines)} lines")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
