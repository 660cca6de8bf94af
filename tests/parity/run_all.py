"""Run programs under penstock in this one process: ``-m tests.parity.run_all RESULTS [NAME...]``.

The results map each program's name to what it printed (``output``) and, where it raised, to the
traceback (``error``).
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import traceback
import types
from pathlib import Path

from tests.parity.parity_common import (
    for_penstock,
    program_names,
    program_path,
    write_input,
)


def run(name: str, lines: Path) -> dict[str, str | None]:
    """Run one program in a module namespace of its own and capture what it prints."""
    path = program_path(name)
    code = compile(for_penstock(path.read_text(encoding="utf-8")), str(path), "exec")
    # The programs are scripts: their functions must travel by value, as a script's do.
    namespace = types.ModuleType("__main__")
    namespace.__file__ = str(path)
    captured = io.StringIO()
    error: str | None = None
    arguments = sys.argv
    sys.argv = [str(path), str(lines)]
    try:
        with contextlib.redirect_stdout(captured):
            exec(code, namespace.__dict__)
    except (Exception, SystemExit):
        error = traceback.format_exc()
    finally:
        sys.argv = arguments
    return {"output": captured.getvalue(), "error": error}


def main(results_path: Path, chosen: list[str]) -> None:
    results: dict[str, dict[str, str | None]] = {}
    with tempfile.TemporaryDirectory() as directory:
        lines = write_input(Path(directory))
        for name in chosen or program_names():
            print(f"running {name}", file=sys.stderr, flush=True)
            results[name] = run(name, lines)
            # After each program, so that a crash loses only the programs after it.
            results_path.write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
