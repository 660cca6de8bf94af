"""Errors for names that PyFlink has and penstock has not; they name the alternative.

Modules use `missing_name_getattr` as their `__getattr__`, classes inherit `ExplainsMissingMethods`.
For missing modules there is an import finder, the last one that Python calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from penstock.errors import NoPyFlinkMethodError, NoPyFlinkModuleError, NoPyFlinkNameError
from penstock.errors.pyflink_names import INSTEAD, instead_of_module


def missing_name_getattr(module: str) -> Callable[[str], NoReturn]:
    """Return the `__getattr__` of a module, which raises the error for a missing name."""

    def explain(name: str) -> NoReturn:
        if name in INSTEAD:
            raise NoPyFlinkNameError(name)
        inner = f"{module}.{name}"
        if instead_of_module(inner) is not None:
            raise NoPyFlinkModuleError(inner)
        message = f"module {module!r} has no attribute {name!r}"
        raise AttributeError(message, name=name)

    return explain


class ExplainsMissingMethods:
    """Raises an error for methods that PyFlink has and penstock has not."""

    __slots__ = ()

    if not TYPE_CHECKING:  # so that type checkers report misspelled names

        def __getattr__(self, name: str) -> NoReturn:
            owner = type(self).__name__
            if name in INSTEAD:
                raise NoPyFlinkMethodError(owner, name)
            message = f"{owner!r} object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)


class UnsupportedAttribute:
    """A class attribute that PyFlink has and penstock has not."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise NoPyFlinkMethodError(owner.__name__, self._name)


class _MissingModules(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.startswith("penstock.") and instead_of_module(fullname) is not None:
            raise NoPyFlinkModuleError(fullname)
        return None


sys.meta_path.append(_MissingModules())
