"""Run PyFlink's examples as `penstock run --pyflink` in this one process: ``RESULTS.json``.

The results map each example to what it printed (``output``) and, where it did not end well, to what
was said (``error``).
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
import traceback
from pathlib import Path

from penstock.cli.main import main as penstock
from tests.parity.wheel_examples import EXAMPLES, TABLES, ExampleFiles


def run(path: Path) -> dict[str, str | None]:
    """Run one example as the command does, but with a JVM that stays for the next."""
    out, err = io.StringIO(), io.StringIO()
    error: str | None = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            penstock(["run", "--pyflink", str(path)])
        except SystemExit as ended:
            error = f"exit code {ended.code}: {err.getvalue()}" if ended.code else None
        except Exception:
            error = traceback.format_exc()
    return {"output": out.getvalue(), "error": error}


def main(results_path: Path) -> None:
    files = ExampleFiles.in_cache().required()
    # Some examples would show all logs among their lines; so they do not set up logging any more.
    logging.basicConfig(stream=sys.stderr)
    results: dict[str, dict[str, str | None]] = {}
    for example in (*EXAMPLES, *TABLES):
        print(f"running {example}", file=sys.stderr, flush=True)
        results[example] = run(files.path(example))
        # After each example, so that a crash loses only those after it.
        results_path.write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
