"""The answer to who asks for what PyFlink has and penstock has not: what to do instead.

Modules answer by a `__getattr__` of their own, objects by being an `AsksForPyFlink`. For modules
that are not there a finder answers, which is asked when nobody else knows them.
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

__all__ = ["AsksForPyFlink", "NotHere", "asked_of"]


def asked_of(module: str) -> Callable[[str], NoReturn]:
    """Return the `__getattr__` of a module that PyFlink's of the same name has more of."""

    def answer(name: str) -> NoReturn:
        if name in INSTEAD:
            raise NoPyFlinkNameError(name)
        inner = f"{module}.{name}"
        if instead_of_module(inner) is not None:
            raise NoPyFlinkModuleError(inner)
        message = f"module {module!r} has no attribute {name!r}"
        raise AttributeError(message, name=name)

    return answer


class AsksForPyFlink:
    """Answers for methods that PyFlink has and penstock has not."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker shall find typos

        def __getattr__(self, name: str) -> NoReturn:
            owner = type(self).__name__
            if name in INSTEAD:
                raise NoPyFlinkMethodError(owner, name)
            message = f"{owner!r} object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)


class NotHere:
    """Stands for a name inside of a class of PyFlink's, where the class itself is asked."""

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
