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

import pytest

from penstock.common.pyflink.missing_names import MissingName
from penstock.datastream import KeyedStream
from penstock.errors import NoPyFlinkMethodError, NoPyFlinkModuleError, NoPyFlinkNameError
from penstock.errors.pyflink_names import INSTEAD

LINES = (Path(__file__).parent / "pyflink_2.3_names.txt").read_text().splitlines()
PAGE = Path(__file__).resolve().parents[3] / "docs" / "pyflink.md"

ELSEWHERE = {
    "common.config_options:ConfigOptions.OptionBuilder": "common.config_options:OptionBuilder",
    "common.config_options:ConfigOptions.TypedConfigOptionBuilder": (
        "common.config_options:TypedConfigOptionBuilder"
    ),
    "datastream.connectors.file_system:OutputFileConfig.OutputFileConfigBuilder": (
        "connectors.files.publisher:OutputFileConfigBuilder"
    ),
    "datastream.connectors.file_system:FileSink.BaseBuilder": (
        "connectors.files.sink:RowFormatBuilder"
    ),
    "datastream.connectors.file_system:FileSink.RowFormatBuilder": (
        "connectors.files.sink:RowFormatBuilder"
    ),
    "datastream.connectors.file_system:FileSink.BulkFormatBuilder": (
        "connectors.files.sink:BulkFormatBuilder"
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
        except (AttributeError, ImportError, NoPyFlinkNameError):
            return "no such name"
        if isinstance(found, MissingName):
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


def ask(name: str) -> None:
    """Ask for a name of PyFlink's as a program would."""
    for theirs, ours in ELSEWHERE.items():
        if name.startswith(f"{theirs}."):
            name = ours + name.removeprefix(theirs)
    module, _, path = name.partition(":")
    owner, _, attribute = path.rpartition(".")
    found: Any
    if not owner:
        imported: dict[str, Any] = {}
        exec(f"from penstock.{module} import {path}", imported)
        imported[path]()
    found = importlib.import_module(f"penstock.{module}")
    for part in owner.split("."):
        found = getattr(found, part)
    getattr(found.__new__(found), attribute)


def asked_for() -> list[tuple[str, str]]:
    """Return every name in the page's table as PyFlink's modules spell it, with its key."""
    gaps = missing()
    asked = []
    for entry in listed():
        names = [n for n in gaps if entry in (n.partition(":")[2], n.partition(":")[0])]
        names += [n for n in gaps if n.partition(":")[0] == f"datastream.{entry}"]
        assert names, entry
        is_module = entry not in {n.partition(":")[2] for n in names}
        for name in names[:1] if is_module else names:
            asked.append((name, name.partition(":")[0] if is_module else entry.rpartition(".")[2]))
    return asked


@pytest.mark.parametrize(("name", "key"), asked_for())
def test_a_missing_name_of_pyflink_raises_an_error_with_the_alternative(
    name: str, key: str
) -> None:
    with pytest.raises((NoPyFlinkModuleError, NoPyFlinkNameError, NoPyFlinkMethodError)) as refused:
        ask(name)
    assert str(refused.value).endswith(f" is not in penstock: {INSTEAD[key]}")


def test_a_missing_class_can_be_imported_and_fails_when_it_is_used() -> None:
    from penstock.datastream import connectors, functions, state_backend

    missing_class: Any = state_backend.CustomStateBackend  # type: ignore[attr-defined]
    assert missing_class is state_backend.CustomStateBackend  # type: ignore[attr-defined]
    assert not isinstance(1, missing_class)
    assert missing_class | None
    with pytest.raises(NoPyFlinkNameError, match="CustomStateBackend is not in penstock"):
        missing_class("org.example.Backend")
    semantic: Any = connectors.kafka.Semantic  # type: ignore[attr-defined]
    with pytest.raises(NoPyFlinkNameError, match="use DeliveryGuarantee"):
        semantic.EXACTLY_ONCE  # noqa: B018
    sink: Any = functions.SinkFunction  # type: ignore[attr-defined]
    with pytest.raises(NoPyFlinkNameError, match="SinkFunction is not in penstock"):
        type("Mine", (sink,), {})


def test_a_class_that_pyflink_has_inside_of_another_is_rejected_by_the_class_itself() -> None:
    with pytest.raises(NoPyFlinkMethodError, match=r"^KeyedStream\.AccumulateType is not in"):
        KeyedStream.AccumulateType  # noqa: B018


def test_a_missing_module_is_rejected_however_it_is_imported() -> None:
    for line in (
        "import penstock.datastream.connectors.jdbc",
        "from penstock.datastream.connectors import jdbc",
        "from penstock.datastream.connectors.jdbc import JdbcSink",
    ):
        with pytest.raises(NoPyFlinkModuleError, match=r"jdbc is not in penstock.*PostgresSink"):
            exec(line)
    with pytest.raises(ModuleNotFoundError, match="No module named"):
        importlib.import_module("penstock.datastream.nothing")


def test_the_sentences_are_for_names_that_are_missing() -> None:
    gaps = {part for name in missing() for part in re.split("[:.]", name)}
    rooms = {"table", "java_gateway", "util"}
    assert [key for key in INSTEAD if key.rpartition(".")[2] not in gaps | rooms] == []


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
