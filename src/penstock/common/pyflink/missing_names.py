"""Errors for names that PyFlink has and penstock has not; they name the alternative.

A missing class can be imported, because a program may import more than it uses; calling it,
deriving from it and reading its attributes are errors. Modules use `missing_name_getattr` as their
`__getattr__`, classes inherit `ExplainsMissingMethods`. For missing modules there is an import
finder, the last one that Python calls.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from penstock.errors import NoPyFlinkMethodError, NoPyFlinkModuleError, NoPyFlinkNameError
from penstock.errors.pyflink_names import INSTEAD, instead_of_module


class MissingName(type):
    """The class of what is imported in place of a class that is missing."""

    def __call__(cls, *args: object, **kwargs: object) -> NoReturn:
        """Refuse to create an object."""
        raise NoPyFlinkNameError(cls.__name__)

    def __getattr__(cls, name: str) -> NoReturn:
        """Refuse static methods, constants and inner classes."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise NoPyFlinkNameError(cls.__name__)


@functools.cache
def _placeholder(name: str) -> MissingName:
    def refuse_subclass(cls: type) -> NoReturn:
        raise NoPyFlinkNameError(name)

    return MissingName(name, (), {"__init_subclass__": classmethod(refuse_subclass)})


def missing_name_getattr(module: str) -> Callable[[str], MissingName]:
    """Return the `__getattr__` of a module, which returns a placeholder for a missing name."""

    def explain(name: str) -> MissingName:
        if name in INSTEAD:
            return _placeholder(name)
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
