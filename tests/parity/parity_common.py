"""What the recorder, the runner and the test share: the programs, their input, their lines."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROGRAMS = HERE / "programs"
EXPECTED = HERE / "expected"

INPUT_LINES = (
    "the quick brown fox",
    "jumps over the lazy dog",
    "",
    "the dog sleeps",
)

_IMPORT = re.compile(r"^(\s*(?:from|import)\s+)pyflink\b", re.MULTILINE)
_SUBTASK = re.compile(r"^\d+> ")
_IDENTIFIED_SUBTASK = re.compile(r"^([^:>]*):\d+> ")


def program_names() -> list[str]:
    """The programs' names, without the suffix, in order."""
    return sorted(path.stem for path in PROGRAMS.glob("[0-9][0-9]_*.py"))


def program_path(name: str) -> Path:
    return PROGRAMS / f"{name}.py"


def expected_path(name: str) -> Path:
    return EXPECTED / f"{name}.txt"


def for_penstock(source: str) -> str:
    """The same program with its imports turned to penstock."""
    return _IMPORT.sub(r"\1penstock", source)


def write_input(directory: Path) -> Path:
    """Write the text file that every program gets as its first argument."""
    path = directory / "lines.txt"
    path.write_text("".join(f"{line}\n" for line in INPUT_LINES), encoding="utf-8")
    return path


def strip_subtask(line: str) -> str:
    """Drop which subtask printed a line: that depends on hashes and scheduling."""
    stripped, changed = _SUBTASK.subn("", line)
    if changed:
        return stripped
    return _IDENTIFIED_SUBTASK.sub(r"\1> ", line)


def normalise(output: str) -> list[str]:
    """A program's output as sorted lines without subtask prefixes."""
    return sorted(strip_subtask(line) for line in output.split("\n") if line)
