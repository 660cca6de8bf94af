"""Package structure: which package may import which, and how large packages may be."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import penstock

ROOT = Path(penstock.__file__).parent

LAYERS: list[list[str]] = [
    # From bottom to top: a package may import its own layer and those above it in this list.
    ["redaction", "errors", "ids", "crash_points", "version"],
    ["common"],
    ["storage"],
    ["types"],
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
    ["snapshots"],
    ["recovery"],
    ["models"],
    ["job"],
    ["client"],
    ["queryable"],
    ["spark"],
    ["datastream"],
    ["table"],
    ["testing"],
    ["serve"],
    ["cli"],
]
RANK = {f"penstock.{name}": rank for rank, names in enumerate(LAYERS) for name in names}
LONGEST_MODULE = 605
MOST_MODULES = 14
LARGE_PACKAGES = {
    "penstock.common": "PyFlink has these modules under the same names",
    "penstock.datastream": "PyFlink has these modules under the same names",
}
"""Packages with more modules than that, and why."""


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
    package = module
    while package not in RANK:
        package, _, name = package.rpartition(".")
        assert name, f"{module} belongs to no layer: add its package to LAYERS"
    return RANK[package]


def test_a_package_imports_only_its_own_and_lower_layers() -> None:
    imported = [(m, name) for m in MODULES if m != "penstock" for name in imported_by(m)]
    own = [(m, name) for m, name in imported if name.startswith("penstock.")]
    assert len(own) > len(MODULES)
    assert [(m, name) for m, name in own if rank(name) > rank(m)] == []


def test_only_the_spark_package_imports_pyspark() -> None:
    engines = ("pyspark", "py4j")
    users = {m for m in MODULES for name in imported_by(m) if name.split(".")[0] in engines}
    assert {m for m in users if not m.startswith("penstock.spark.")} == set()


def test_there_are_no_import_cycles() -> None:
    below = {m: imported_by(m, in_functions=False) & MODULES.keys() - {m} for m in MODULES}
    while free := [m for m, needed in below.items() if not needed]:
        below = {m: needed - set(free) for m, needed in below.items() if m not in free}
    assert below == {}


def test_no_module_is_too_long() -> None:
    lengths = {m: len(path.read_text(encoding="utf-8").splitlines()) for m, path in MODULES.items()}
    assert {m: n for m, n in lengths.items() if n > LONGEST_MODULE} == {}


def test_no_package_has_too_many_modules() -> None:
    modules = Counter(
        m.rpartition(".")[0] for m, path in MODULES.items() if path.stem != "__init__"
    )
    large = {package for package, count in modules.items() if count > MOST_MODULES}
    assert large == set(LARGE_PACKAGES)
