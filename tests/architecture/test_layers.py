"""The rooms of the package: who may import whom, read off the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import penstock

ROOT = Path(penstock.__file__).parent

LAYERS: list[list[str]] = [
    ["errors", "ids", "crash_points", "version"],
    ["common"],
    [
        "datastream.state",
        "datastream.state_ttl",
        "datastream.metrics",
        "metrics",
        "datastream.functions",
        "datastream.batch_keys",
        "datastream.batch_functions",
        "datastream.output_tag",
        "datastream.async_functions",
        "datastream.async_retry_strategies",
        "datastream.runtime_context",
        "datastream.time_domain",
        "datastream.timerservice",
        "datastream.window_functions",
        "datastream.window",
    ],
    ["state"],
    ["connectors"],
    ["graph"],
    ["channel"],
    ["task"],
    ["checkpoint"],
    ["savepoint"],
    ["recovery"],
    ["job"],
    ["spark"],
    ["datastream"],
    ["table"],
    ["testing"],
    ["cli"],
]
RANK = {f"penstock.{room}": rank for rank, rooms in enumerate(LAYERS) for room in rooms}
LONGEST_MODULE = 600


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imports(node: ast.AST, *, in_functions: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.module is not None, "imports are absolute"
            for alias in child.names:
                inner = f"{child.module}.{alias.name}"
                yield inner if inner in MODULES else child.module
        elif isinstance(child, ast.stmt) and is_type_checking(child):
            continue
        elif in_functions or not isinstance(child, ast.FunctionDef):
            yield from imports(child, in_functions=in_functions)


@cache
def imported_by(module: str, *, in_functions: bool = True) -> frozenset[str]:
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    return frozenset(imports(tree, in_functions=in_functions))


def rank(module: str) -> int:
    room = module
    while room not in RANK:
        room = room.rpartition(".")[0]
    return RANK[room]


def test_a_room_imports_only_from_rooms_below() -> None:
    arrows = [(m, name) for m in MODULES if m != "penstock" for name in imported_by(m)]
    own = [(m, name) for m, name in arrows if name.startswith("penstock.")]
    assert len(own) > len(MODULES)
    assert [(m, name) for m, name in own if rank(name) > rank(m)] == []


def test_only_the_spark_room_imports_spark() -> None:
    engines = ("pyspark", "py4j")
    users = {m for m in MODULES for name in imported_by(m) if name.split(".")[0] in engines}
    assert {m for m in users if not m.startswith("penstock.spark.")} == set()


def test_no_modules_import_each_other_in_a_circle() -> None:
    below = {m: imported_by(m, in_functions=False) & MODULES.keys() - {m} for m in MODULES}
    while free := [m for m, needed in below.items() if not needed]:
        below = {m: needed - set(free) for m, needed in below.items() if m not in free}
    assert below == {}


def test_no_module_is_longer_than_a_reader_bears() -> None:
    lengths = {m: len(path.read_text(encoding="utf-8").splitlines()) for m, path in MODULES.items()}
    assert {m: n for m, n in lengths.items() if n > LONGEST_MODULE} == {}
