"""Every public name of PyFlink's DataStream API is here, or listed as missing with the reason.

``python -m tests.unit.datastream.test_pyflink_names`` prints what is missing now;
``tests.parity.names`` makes the list of PyFlink's names.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import penstock.datastream
from penstock.datastream.not_yet import METHODS, NAMES

LINES = (Path(__file__).parent / "pyflink_2.3_names.txt").read_text().splitlines()
PAGE = Path(__file__).resolve().parents[3] / "docs" / "pyflink.md"

ELSEWHERE = {
    "common.config_options:ConfigOptions.OptionBuilder": "common.config_options:OptionBuilder",
    "common.config_options:ConfigOptions.TypedConfigOptionBuilder": (
        "common.config_options:TypedConfigOptionBuilder"
    ),
    "datastream.connectors.file_system:OutputFileConfig.OutputFileConfigBuilder": (
        "connectors.file_sink:OutputFileConfigBuilder"
    ),
    "datastream.connectors.file_system:FileSink.BaseBuilder": (
        "connectors.file_sink:RowFormatBuilder"
    ),
    "datastream.connectors.file_system:FileSink.RowFormatBuilder": (
        "connectors.file_sink:RowFormatBuilder"
    ),
    "datastream.connectors.file_system:FileSink.BulkFormatBuilder": (
        "connectors.file_sink:BulkFormatBuilder"
    ),
}
"""Classes that nobody names, because a method gives their objects."""


def difference(line: str) -> str | None:
    """Say how penstock differs from a line of the list; None if it does not."""
    name, _, parameters = line.partition("(")
    for theirs, ours in ELSEWHERE.items():
        if name == theirs or name.startswith(f"{theirs}."):
            name = ours + name.removeprefix(theirs)
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(f"penstock.{module}")
    except ImportError:
        return "no such module"
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except (AttributeError, ImportError):
            return "no such name"
    return misfit(found, parameters.removesuffix(")")) if parameters else None


def misfit(found: Any, wanted: str) -> str | None:
    """Say why a call that PyFlink takes would not be taken here."""
    own = [p for p in inspect.signature(found).parameters.values() if p.name != "self"]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in own)
    by_name = {p.name: p for p in own}
    theirs = [spelt for spelt in wanted.split(", ") if spelt]
    for i, spelt in enumerate(theirs):
        parameter = by_name.get(spelt.rstrip("="))
        if spelt.startswith("*") or (parameter is None and takes_any):
            continue
        if parameter is None:
            return f"no parameter {spelt}"
        if parameter.kind is not parameter.KEYWORD_ONLY and own.index(parameter) != i:
            return f"parameter {spelt} is elsewhere"
        if spelt.endswith("=") and parameter.default is parameter.empty:
            return f"parameter {spelt} has a default there"
    names = {spelt.strip("=*") for spelt in theirs}
    for parameter in own:
        is_variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        is_needed = parameter.default is parameter.empty and not is_variadic
        if is_needed and parameter.name not in names:
            return f"parameter {parameter.name} is needed only here"
    return None


def missing() -> dict[str, str]:
    """Return the differences, by the name they are about."""
    return {line.partition("(")[0]: why for line in LINES if (why := difference(line))}


def listed() -> Iterator[str]:
    """Yield the names in the first column of the page's table."""
    section = PAGE.read_text().split("## What is missing")[1].split("\n## ")[0]
    for row in re.findall(r"^\| (`.*?) \| .+ \|$", section, re.M):
        yield from re.findall(r"`([^`]+)`", row)


def covers(entry: str, name: str) -> bool:
    """Tell whether an entry is about a name: its module, its class, or itself."""
    module, _, path = name.partition(":")
    about = (module.removeprefix("datastream."), path)
    return any(part == entry or part.startswith(f"{entry}.") for part in about)


def test_the_list_is_pyflinks() -> None:
    assert len(LINES) > 1400
    assert "datastream.data_stream:DataStream.map(func, output_type=)" in LINES


def test_every_name_of_pyflink_is_here_or_listed_with_the_reason() -> None:
    entries = list(listed())
    gaps = missing()
    assert {n: w for n, w in gaps.items() if not any(covers(e, n) for e in entries)} == {}


def test_nothing_is_listed_that_is_not_missing() -> None:
    gaps = missing()
    assert [e for e in listed() if not any(covers(e, n) for n in gaps)] == []


def test_who_asks_for_a_missing_name_is_told_what_to_do() -> None:
    names = [n.partition(":")[2] for n in missing() if n.startswith("datastream:")]
    assert [n for n in names if n not in NAMES] == []
    assert [n for n in NAMES if n in vars(penstock.datastream)] == []
    methods = [n.rpartition(".")[2] for n in missing() if "StreamExecutionEnvironment." in n]
    assert [n for n in methods if n not in METHODS] == []


def test_a_signature_that_differs_is_found() -> None:
    def ours(first: int, second: int = 0) -> None: ...

    assert misfit(ours, "first, second=") is None
    assert misfit(ours, "first") is None
    assert misfit(ours, "first=") == "parameter first= has a default there"
    assert misfit(ours, "second=, first") == "parameter second= is elsewhere"
    assert misfit(ours, "first, third") == "no parameter third"
    assert misfit(ours, "second=") == "parameter second= is elsewhere"
    assert misfit(lambda needed: None, "") == "parameter needed is needed only here"


if __name__ == "__main__":
    for name, why in missing().items():
        print(f"{name}  {why}")
