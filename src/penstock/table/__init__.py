"""The supported part of PyFlink's Table API: data types, and `datagen` tables as sources."""

from typing import NoReturn

from penstock.errors import NoPyFlinkModuleError
from penstock.table.schema import Schema
from penstock.table.table import Table
from penstock.table.table_descriptor import TableDescriptor
from penstock.table.table_environment import StreamTableEnvironment
from penstock.table.types import DataTypes

__all__ = ["DataTypes", "Schema", "StreamTableEnvironment", "Table", "TableDescriptor"]


def __getattr__(name: str) -> NoReturn:
    if name.startswith("_"):
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    # An ImportError, because `from pyflink.table import ...` hides any other message.
    module = f"pyflink.table.{name}"
    raise NoPyFlinkModuleError(module)
