"""Cells of CSV: values out of their text, and the text of values."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, TypeAlias

from penstock.common.java_text import java_string
from penstock.common.row import Row
from penstock.common.typeinfo import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    ListTypeInfo,
    ObjectArrayTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TypeInformation,
    Types,
)
from penstock.connectors.csv_lines import CsvLayout
from penstock.connectors.text_values import bytes_of_base64, parser_of
from penstock.errors import InvalidJobError

__all__ = [
    "CellParser",
    "CellSpeller",
    "cell_parser",
    "cell_speller",
    "character",
    "is_text",
    "not_empty",
    "row_type_of",
]

CellParser: TypeAlias = Callable[[str], Any]
CellSpeller: TypeAlias = Callable[[Any], str]

_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
_TEXTUAL = (BasicType.STRING, BasicType.CHAR)


def row_type_of(type_info: TypeInformation | None) -> RowTypeInfo:
    """Refuse what is no row type."""
    if type_info is None:
        message = "Type information must not be None"
        raise TypeError(message)
    if not isinstance(type_info, RowTypeInfo):
        message = f"Row type information expected; got {type_info!r}"
        raise InvalidJobError(message)
    return type_info


def character(what: str, text: str) -> str:
    """Refuse what is not one character."""
    if not isinstance(text, str) or len(text) != 1:
        message = f"a {what} is one character; got {text!r}"
        raise InvalidJobError(message)
    return text


def not_empty(text: str) -> str:
    """Refuse an empty delimiter."""
    if not text:
        message = "an array element delimiter must not be empty"
        raise InvalidJobError(message)
    return text


def cell_parser(type_info: TypeInformation, layout: CsvLayout, ignore_errors: bool) -> CellParser:
    """Make the parser of a cell, which raises ``ValueError`` unless errors are ignored."""
    parse = _parser(type_info, layout, ignore_errors)
    null = layout.null_literal

    def parse_or_none(cell: str) -> Any:
        if cell == null:
            return None
        try:
            return parse(cell)
        except ValueError:
            if ignore_errors:
                return None
            raise

    return parse_or_none


def _parser(type_info: TypeInformation, layout: CsvLayout, ignore_errors: bool) -> CellParser:
    if (parse := parser_of(type_info)) is not None:
        return parse
    if type_info == _BYTES:
        return bytes_of_base64
    if (element := _element(type_info)) is not None:
        each = cell_parser(element, layout, ignore_errors)
        return lambda cell: [each(part) for part in _parts(cell, layout)]
    if isinstance(type_info, RowTypeInfo):
        parsers = [cell_parser(kind, layout, ignore_errors) for kind in type_info.field_types]
        names = list(type_info.field_names)
        return lambda cell: _nested_row(parsers, names, _parts(cell, layout))
    message = f"Unsupported type information {type_info!r} in a CSV row"
    raise InvalidJobError(message)


def _nested_row(parsers: list[CellParser], names: list[str], parts: list[str]) -> Row:
    if len(parts) != len(parsers):
        message = f"Row length mismatch. {len(parsers)} fields expected but was {len(parts)}."
        raise ValueError(message)
    row = Row(*(parse(part) for parse, part in zip(parsers, parts, strict=True)))
    row.set_field_names(names)
    return row


def _parts(cell: str, layout: CsvLayout) -> list[str]:
    if not layout.array_delimiter:
        return [cell]
    return cell.split(layout.array_delimiter) if cell else []


def _element(type_info: TypeInformation) -> TypeInformation | None:
    match type_info:
        case ListTypeInfo(element) | ObjectArrayTypeInfo(element) | BasicArrayTypeInfo(element):
            return element
    return None


def cell_speller(type_info: TypeInformation, layout: CsvLayout) -> CellSpeller:
    """Make the function that gives the text of a value."""
    if isinstance(type_info, BasicTypeInfo | SqlTimeTypeInfo):
        if parser_of(type_info) is not None:
            return lambda value: java_string(value, type_info)
    elif type_info == _BYTES:
        return lambda value: base64.b64encode(value).decode()
    elif (element := _element(type_info)) is not None:
        each = cell_speller(element, layout)
        return lambda values: _joined([(each, value) for value in values], layout)
    elif isinstance(type_info, RowTypeInfo):
        spellers = [cell_speller(kind, layout) for kind in type_info.field_types]
        return lambda row: _joined(list(zip(spellers, row, strict=True)), layout)
    message = f"Unsupported type information {type_info!r} in a CSV row"
    raise InvalidJobError(message)


def _joined(parts: list[tuple[CellSpeller, Any]], layout: CsvLayout) -> str:
    null = layout.null_literal or ""
    return layout.array_delimiter.join(null if v is None else spell(v) for spell, v in parts)


def is_text(type_info: TypeInformation) -> bool:
    """Tell whether cells of a type may need quotes."""
    if isinstance(type_info, BasicTypeInfo):
        return type_info.kind in _TEXTUAL
    return True
