"""Record what the programs print under PyFlink: ``python -m tests.parity.record PYTHON [NAME...]``.

PYTHON is an interpreter that has PyFlink 2.3 installed. Each program runs in a process of its own
and its lines go to ``expected/NAME.txt``, sorted, without subtask prefixes. So do PyFlink's own
examples, whose lines go to ``expected_examples``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.parity import wheel_examples
from tests.parity.parity_common import (
    EXPECTED,
    expected_path,
    normalise,
    program_names,
    program_path,
    write_input,
)
from tests.parity.wheel_examples import EXAMPLES

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
    # in thread mode results are merged where accumulators of two sessions should be
    "36_session_windows",
    # in thread mode the runtime context cannot tell the subtask
    "43_partition_project",
    # and there are no async functions
    "44_async",
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

ENVIRONMENT = {
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    # Flink sends watermarks by the clock: a program that wants one behind each record waits.
    "PARITY_PAUSE": "0.3",
}

NOISE = ("WARNING", "SLF4J", "log4j:", "ERROR StatusLogger", "OpenJDK ", "Picked up ")


def site_packages(python: str) -> str:
    """Where PYTHON keeps its packages: the interpreter inside the JVM must be told."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def record(python: str, packages: str, name: str) -> tuple[Path, list[str]]:
    """Run one program or example under PyFlink; return its file and its normalised lines."""
    if name in EXAMPLES:
        path = Path(packages, "pyflink", "examples", "datastream", f"{name}.py")
        said = run(python, packages, name, [str(path)])
        return wheel_examples.expected_path(name), wheel_examples.lines_of(said)
    mode = "process" if name in PROCESS_MODE else "thread"
    said = run(python, packages, name, ["-c", BOOTSTRAP, mode, str(program_path(name))])
    lines = [line for line in normalise(said) if not line.startswith(NOISE)]
    return expected_path(name), lines


def run(python: str, packages: str, name: str, arguments: list[str]) -> str:
    """Run a program under PyFlink in a process of its own; return what it printed."""
    with tempfile.TemporaryDirectory() as directory:
        # Only programs read it; the examples pass it by.
        lines = write_input(Path(directory))
        done = subprocess.run(
            [python, *arguments, str(lines)],
            capture_output=True,
            text=True,
            check=False,
            cwd=directory,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": packages},
            timeout=300,
        )
    if done.returncode != 0:
        message = f"{name} failed under PyFlink:\n{done.stdout}\n{done.stderr}"
        raise RuntimeError(message)
    return done.stdout


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__)
        return 2
    python, *wanted = arguments
    packages = site_packages(python)
    EXPECTED.mkdir(exist_ok=True)
    failed = 0
    for name in wanted or [*program_names(), *EXAMPLES]:
        try:
            path, lines = record(python, packages, name)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(error, file=sys.stderr)
            failed += 1
            continue
        text = "".join(f"{line}\n" for line in lines)
        path.write_text(text, encoding="utf-8")
        print(f"{name}: {len(lines)} lines")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
