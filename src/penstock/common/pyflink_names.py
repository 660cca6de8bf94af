"""Programs whose imports still say `pyflink`: each such module is penstock's of the same name."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from penstock.errors import NoPyFlinkModuleError

__all__ = ["PyFlinkNames", "in_use", "use_pyflink_names"]

_ROOT = "pyflink"
_OURS = "penstock"
_SHARED = ("common", "datastream", "metrics", "table", "version")
"""What both have; penstock's other rooms are none of PyFlink's."""


class PyFlinkNames(MetaPathFinder, Loader):
    """Finds `pyflink.X`, and gives `penstock.X` itself: one class, whichever name asks for it.

    So pickles name penstock's modules only, and can be read where nobody has heard of PyFlink.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the way to penstock's module of that name.

        Raises:
            NoPyFlinkModuleError: there is none.
        """
        root, _, rest = fullname.partition(".")
        if root != _ROOT:
            return None
        if rest and (rest.split(".")[0] not in _SHARED or not _exists(f"{_OURS}.{rest}")):
            raise NoPyFlinkModuleError(fullname)
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """Put penstock's module in the place of the empty one that was made for it."""
        name = module.__name__
        sys.modules[name] = importlib.import_module(_OURS + name.removeprefix(_ROOT))

    def __reduce__(self) -> tuple[Callable[[], PyFlinkNames], tuple[()]]:
        """Be used wherever it is unpickled: what comes behind it in a pickle may need it."""
        return use_pyflink_names, ()


def use_pyflink_names() -> PyFlinkNames:
    """Let `import pyflink` mean penstock in this process, though PyFlink may be installed."""
    found = in_use()
    if found is None:
        found = PyFlinkNames()
        sys.meta_path.insert(0, found)
    return found


def in_use() -> PyFlinkNames | None:
    """Return what a process that this one starts has to unpickle first, if anything."""
    return next((one for one in sys.meta_path if isinstance(one, PyFlinkNames)), None)


def _exists(name: str) -> bool:
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except NoPyFlinkModuleError:
        return False
