"""Run PyFlink's examples as `penstock run --pyflink` in this one process: ``RESULTS.json``.

The results map each example to what it printed (``output``) and, where it did not end well, to what
was said (``error``). One without an end gets a Ctrl-C when it has printed enough.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

from penstock.cli.exit_codes import ExitCode
from penstock.cli.main import main as penstock
from tests.parity.wheel_examples import ENDLESS, EXAMPLES, ExampleFiles


def run(path: Path, enough: int | None) -> dict[str, str | None]:
    """Run one example as the command does, but with a JVM that stays for the next."""
    out, err = io.StringIO(), io.StringIO()
    error: str | None = None
    expected = ExitCode.DONE if enough is None else ExitCode.INTERRUPTED
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with interrupted_behind(enough, out):
                penstock(["run", "--pyflink", str(path)])
        except SystemExit as ended:
            well = (ended.code or 0) == expected
            error = None if well else f"exit code {ended.code}: {err.getvalue()}"
        except Exception:
            error = traceback.format_exc()
    return {"output": out.getvalue(), "error": error}


@contextlib.contextmanager
def interrupted_behind(lines: int | None, out: io.StringIO) -> Iterator[None]:
    """Let Ctrl-C come once so many lines are there, if there is a number."""
    ended = threading.Event()

    def watch(enough: int) -> None:
        while out.getvalue().count("\n") < enough:
            if ended.wait(0.1):
                return
        os.kill(os.getpid(), signal.SIGINT)

    if lines is not None:
        threading.Thread(target=watch, args=[lines], daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def main(results_path: Path) -> None:
    files = ExampleFiles.in_cache().required()
    # Some examples would show all logs among their lines; so they do not set up logging any more.
    logging.basicConfig(stream=sys.stderr)
    results: dict[str, dict[str, str | None]] = {}
    for example in (*EXAMPLES, *ENDLESS):
        print(f"running {example}", file=sys.stderr, flush=True)
        results[example] = run(files.path(example), ENDLESS.get(example))
        # After each example, so that a crash loses only those after it.
        results_path.write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
