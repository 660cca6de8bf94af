"""Only what formats of files want of PyFlink's Table API: names of types."""

from typing import NoReturn

from penstock.errors import NoPyFlinkModuleError
from penstock.table.types import DataTypes

__all__ = ["DataTypes"]


def __getattr__(name: str) -> NoReturn:
    if name.startswith("_"):
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    # An ImportError, because `from pyflink.table import ...` hides any other message.
    asked_for = f"pyflink.table.{name}"
    raise NoPyFlinkModuleError(asked_for)
