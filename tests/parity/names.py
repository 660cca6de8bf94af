"""The public names of PyFlink's DataStream API, with their parameters, read off its sources.

``python -m tests.parity.names PYFLINK`` writes them anew; PYFLINK is the package's directory.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

NAMES = Path(__file__).parents[1] / "unit" / "datastream" / "pyflink_2.3_names.txt"
ROOMS = ("common", "datastream", "metrics")
INNER = ("tests", "utils")
"""Modules that are PyFlink's own affair."""


def lines_of(package: Path) -> Iterator[str]:
    """Yield a line for each public class, function, method and constant."""
    for room in ROOMS:
        for path in sorted((package / room).rglob("*.py")):
            module = path.relative_to(package).with_suffix("")
            if set(module.parts) & set(INNER):
                continue
            tree = ast.parse(path.read_text())
            if module.name == "__init__":
                yield from (f"{'.'.join(module.parts[:-1])}:{n}" for n in _exported(tree) or ())
            else:
                yield from _module(".".join(module.parts), tree)


def _module(module: str, tree: ast.Module) -> Iterator[str]:
    exported = _exported(tree)
    for node in tree.body:
        if exported is not None and getattr(node, "name", None) not in exported:
            continue
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _class(f"{module}:{node.name}", node)
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield f"{module}:{node.name}({_parameters(node)})"


def _exported(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    return None


def _class(name: str, node: ast.ClassDef) -> Iterator[str]:
    yield name
    seen = set()
    for child in node.body:
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from _class(f"{name}.{child.name}", child)
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if child.name in seen or not _is_public(child):
                continue
            seen.add(child.name)
            decorators = [ast.unparse(d) for d in child.decorator_list]
            if "property" in decorators:
                yield f"{name}.{child.name}"
            else:
                is_static = "staticmethod" in decorators
                yield f"{name}.{child.name}({_parameters(child, skip_self=not is_static)})"
        elif isinstance(child, ast.Assign):
            constant = ast.unparse(child.targets[0])
            if not constant.startswith("_"):
                yield f"{name}.{constant}"


def _is_public(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Leave out what is inner, and what takes or gives the Java object behind a Python one."""
    if method.name.startswith("_") and method.name != "__init__":
        return False
    if "java" in method.name or method.name.startswith(("j_", "to_j_")):
        return False
    return not any(a.arg.startswith("j_") for a in method.args.args)


def _parameters(
    function: ast.FunctionDef | ast.AsyncFunctionDef, *, skip_self: bool = False
) -> str:
    arguments = function.args
    positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    required = len(positional) - len(arguments.defaults)
    shown = [n if i < required else f"{n}=" for i, n in enumerate(positional)][skip_self:]
    if arguments.vararg is not None:
        shown.append(f"*{arguments.vararg.arg}")
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        shown.append(f"{'' if arguments.vararg else '*, '}{argument.arg}{'=' if default else ''}")
    if arguments.kwarg is not None:
        shown.append(f"**{arguments.kwarg.arg}")
    return ", ".join(shown)


def main() -> None:
    """Write the file."""
    NAMES.write_text("".join(f"{line}\n" for line in lines_of(Path(sys.argv[1]))))


if __name__ == "__main__":
    main()
