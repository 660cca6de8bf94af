"""Every public name of PyFlink's DataStream API is here, or listed as missing with the reason."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

NAMES = Path(__file__).parent / "pyflink_2.3_names.txt"
MISSING = Path(__file__).resolve().parents[3] / "docs" / "pyflink.md"


def difference(line: str) -> str | None:
    """Say how penstock differs from a line of the list; None if it does not."""
    name, _, parameters = line.partition("(")
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(f"penstock.{module}")
    except ImportError:
        return "no such module"
    for part in path.split("."):
        # PyFlink's names are looked up as a program would: what only refuses does not count.
        try:
            found = getattr(found, part)
        except (AttributeError, ImportError):
            return "no such name"
    return misfit(found, parameters.rstrip(")")) if parameters else None


def misfit(found: Any, wanted: str) -> str | None:
    """Say why a call that PyFlink takes would not be taken here."""
    own = [p for p in inspect.signature(found).parameters.values() if p.name != "self"]
    takes_all = any(p.kind is p.VAR_POSITIONAL for p in own)
    by_name = {p.name: p for p in own}
    for i, spelt in enumerate(filter(None, wanted.split(", "))):
        if spelt.startswith("*"):
            continue
        parameter = by_name.get(spelt.rstrip("="))
        if parameter is None:
            return f"no parameter {spelt}" if not takes_all else None
        if parameter.kind is not parameter.KEYWORD_ONLY and own.index(parameter) != i:
            return f"parameter {spelt} is elsewhere"
        if spelt.endswith("=") and parameter.default is parameter.empty:
            return f"parameter {spelt} has a default there"
    names = {spelt.rstrip("=").lstrip("*") for spelt in wanted.split(", ")}
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for parameter in own:
        is_needed = parameter.default is parameter.empty and parameter.kind not in variadic
        if is_needed and parameter.name not in names:
            return f"parameter {parameter.name} is needed only here"
    return None


def missing() -> dict[str, str]:
    """Return the differences, by the name they are about."""
    lines = NAMES.read_text().splitlines()
    assert len(lines) > 1000
    return {line.partition("(")[0]: why for line in lines if (why := difference(line))}


if __name__ == "__main__":
    for name, why in missing().items():
        print(f"{name}  {why}")
