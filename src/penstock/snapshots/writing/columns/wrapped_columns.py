"""Columns in which a value is the only field of a struct, as Spark's readers of state have them."""

from __future__ import annotations

import pyarrow as pa

from penstock.common.typeinfo import MapTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from penstock.types.traversal import element_type


def unwrapped(column: pa.Array, type_info: TypeInformation) -> pa.Array:
    """Return the values of a column, also from structs around them, their elements or entries."""
    arrow = column.type
    if isinstance(type_info, TupleTypeInfo | RowTypeInfo):
        return column
    if pa.types.is_struct(arrow) and arrow.num_fields == 1:
        return unwrapped(column.flatten()[0], type_info)
    element = element_type(type_info)
    if element is not None and pa.types.is_list(arrow) and _may_wrap(arrow.value_type):
        inside = unwrapped(column.values, element)
        mask = column.is_null() if column.null_count else None
        return pa.ListArray.from_arrays(column.offsets, inside, mask=mask)
    if isinstance(type_info, MapTypeInfo) and pa.types.is_map(arrow):
        if not _may_wrap(arrow.key_type) and not _may_wrap(arrow.item_type):
            return column
        keys, items = (
            unwrapped(column.keys, type_info.key),
            unwrapped(column.items, type_info.value),
        )
        mask = column.is_null() if column.null_count else None
        return pa.MapArray.from_arrays(column.offsets, keys, items, mask=mask)
    return column


def _may_wrap(arrow: pa.DataType) -> bool:
    if pa.types.is_list(arrow):
        return _may_wrap(arrow.value_type)
    return bool(pa.types.is_struct(arrow) or pa.types.is_map(arrow))
