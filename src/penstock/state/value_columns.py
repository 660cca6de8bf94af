"""Values of a state as one Arrow column and back, for those who read and write many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from penstock.common.row import Row
from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from penstock.state.type_text import parse

__all__ = ["ValueColumn", "value_column"]

_ARROW: dict[BasicType, pa.DataType] = {
    BasicType.STRING: pa.string(),
    BasicType.BOOLEAN: pa.bool_(),
    BasicType.BYTE: pa.int8(),
    BasicType.SHORT: pa.int16(),
    BasicType.INT: pa.int32(),
    BasicType.LONG: pa.int64(),
    BasicType.FLOAT: pa.float32(),
    BasicType.DOUBLE: pa.float64(),
}


@dataclass(frozen=True, slots=True)
class ValueColumn:
    """A column of values, null where there is none."""

    arrow: pa.DataType
    to_plain: Callable[[Any], Any] | None = None
    """What Arrow takes for a value, if not the value itself."""
    from_plain: Callable[[Any], Any] | None = None

    def fill(self, values: Sequence[Any]) -> pa.Array:
        """Return values, or None, as a column."""
        convert = self.to_plain
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        return pa.array(values, self.arrow)

    def drain(self, column: Any) -> list[Any]:
        """Return a column, or anything that makes one, as values.

        Raises:
            ValueError, TypeError: if they are not of the type, or do not fit into it.
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
def value_column(type_text: str) -> ValueColumn | None:
    """Return the column for values of a type, None if they have none."""
    type_info = parse(type_text)
    arrow = _basic(type_info)
    if arrow is not None:
        return ValueColumn(arrow)
    if not isinstance(type_info, (RowTypeInfo, TupleTypeInfo)) or not type_info.field_types:
        return None
    fields = [_basic(field) for field in type_info.field_types]
    if None in fields:
        return None
    if isinstance(type_info, TupleTypeInfo):
        names = [f"f{position}" for position in range(len(fields))]
    else:
        names = type_info.get_field_names()
    is_row = isinstance(type_info, RowTypeInfo)
    make: Callable[..., Any] = Row(*names) if is_row else lambda *values: values
    return ValueColumn(
        pa.struct(list(zip(names, fields, strict=True))),
        lambda value: dict(zip(names, value, strict=True)),
        lambda plain: make(*plain.values()),
    )


def _basic(type_info: TypeInformation) -> pa.DataType | None:
    return _ARROW.get(type_info.kind) if isinstance(type_info, BasicTypeInfo) else None
