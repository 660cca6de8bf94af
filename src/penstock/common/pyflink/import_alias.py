"""Lets programs import `pyflink`: each of its modules is penstock's of the same name."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from penstock.errors import NoPyFlinkModuleError

_ROOT = "pyflink"
_OURS = "penstock"
_SHARED = ("common", "datastream", "metrics", "table", "version")
"""The packages that both have."""


class PyFlinkImportAlias(MetaPathFinder, Loader):
    """An import finder that returns the module `penstock.X` itself for `pyflink.X`.

    So pickles name penstock's modules only, and can be read without this alias.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of PyFlink.

        Raises:
            NoPyFlinkModuleError: penstock has no such module.
        """
        root, _, rest = fullname.partition(".")
        if root != _ROOT:
            return None
        if rest and (rest.split(".")[0] not in _SHARED or not _exists(f"{_OURS}.{rest}")):
            raise NoPyFlinkModuleError(fullname)
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """Replace the empty module by penstock's."""
        name = module.__name__
        sys.modules[name] = importlib.import_module(_OURS + name.removeprefix(_ROOT))

    def __reduce__(self) -> tuple[Callable[[], PyFlinkImportAlias], tuple[()]]:
        """Install the alias where it is unpickled: the rest of the pickle may need it."""
        return use_pyflink_names, ()


def use_pyflink_names() -> PyFlinkImportAlias:
    """Make `import pyflink` import penstock in this process, even if PyFlink is installed."""
    found = installed_alias()
    if found is None:
        found = PyFlinkImportAlias()
        sys.meta_path.insert(0, found)
    return found


def installed_alias() -> PyFlinkImportAlias | None:
    """Return the installed alias, which new processes have to unpickle first, or None."""
    return next((one for one in sys.meta_path if isinstance(one, PyFlinkImportAlias)), None)


def _exists(name: str) -> bool:
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except NoPyFlinkModuleError:
        return False
