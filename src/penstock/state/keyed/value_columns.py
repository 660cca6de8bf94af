"""Converts the values of a state to an Arrow column and back, for batch functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from penstock.common.row import Row
from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo
from penstock.types.arrow import flat_type
from penstock.types.signature import parse_signature
from penstock.types.traversal import field_names


@dataclass(frozen=True, slots=True)
class ValueColumn:
    """A column of values, null where there is none."""

    arrow: pa.DataType
    to_plain: Callable[[Any], Any] | None = None
    """Converts a value to what Arrow takes, if it is not the value itself."""
    from_plain: Callable[[Any], Any] | None = None

    def to_arrow(self, values: Sequence[Any]) -> pa.Array:
        """Return values, or None, as a column."""
        convert = self.to_plain
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        return pa.array(values, self.arrow)

    def from_arrow(self, column: Any) -> list[Any]:
        """Return the values of a column, or of anything that can be made one.

        Raises:
            ValueError, TypeError: if they are not of the type.
        """
        array = column if isinstance(column, pa.Array) else pa.array(column, self.arrow)
        if array.type != self.arrow:
            array = array.cast(self.arrow)
        if self.from_plain is None:
            if not array.null_count and not pa.types.is_string(array.type):
                numbers: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
                return numbers
            plain: list[Any] = array.to_pylist()
            return plain
        convert = self.from_plain
        return [None if value is None else convert(value) for value in array.to_pylist()]


@lru_cache(maxsize=256)
def value_column(signature: str) -> ValueColumn | None:
    """Return the column for values of a type, None if they have none."""
    type_info = parse_signature(signature)
    arrow = flat_type(type_info)
    if arrow is None or not isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        return None if arrow is None else ValueColumn(arrow)
    names = field_names(type_info)
    is_row = isinstance(type_info, RowTypeInfo)
    make: Callable[..., Any] = Row(*names) if is_row else lambda *values: values
    return ValueColumn(
        arrow,
        lambda value: dict(zip(names, value, strict=True)),
        lambda plain: make(*plain.values()),
    )
