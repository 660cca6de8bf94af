"""Tells whether state of one type can be migrated to another.

Fields of a row may be added (their initial value is None), removed and reordered; numbers may be
widened, at any depth, if every old value keeps its exact value. Everything else is rejected,
because a guess could lose data silently. The key types of a step and of a map can never change,
because values are found by the bytes of their keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.common.row import Row
from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from penstock.types.signature import type_signature
from penstock.types.traversal import Convert, element_type, identity, or_none


@dataclass(frozen=True, slots=True)
class AsIs:
    """The types are the same."""


@dataclass(frozen=True, slots=True)
class Migration:
    """Old values are converted by ``convert``, which does not change the old value.

    With ``same_bytes`` the encoded values are the same under both types, and nothing needs to be
    rewritten.
    """

    convert: Convert
    same_bytes: bool


@dataclass(frozen=True, slots=True)
class Incompatible:
    """Old values cannot be converted, and why."""

    reason: str


Compatibility = AsIs | Migration | Incompatible

_INTEGERS = [BasicType.BYTE, BasicType.SHORT, BasicType.INT, BasicType.LONG, BasicType.BIG_INT]
_EXACT_IN_DOUBLE = {BasicType.BYTE, BasicType.SHORT, BasicType.INT}


def compatibility(old: TypeInformation, new: TypeInformation) -> Compatibility:
    """Return how values of one type are migrated to another. Pure."""
    return _compare(old, new, "")


def _compare(old: TypeInformation, new: TypeInformation, path: str) -> Compatibility:
    if old == new:
        return AsIs()
    match old, new:
        case (PickledBytesTypeInfo(), _) | (_, PickledBytesTypeInfo()):
            sentence = "pickled values cannot be compared with a declared type"
            return Incompatible(_at(path, sentence))
        case BasicTypeInfo(old_kind), BasicTypeInfo(new_kind):
            return _basic(old_kind, new_kind) or _refused(old, new, path)
        case RowTypeInfo(), RowTypeInfo():
            return _row(old, new, path)
        case TupleTypeInfo(), TupleTypeInfo():
            return _tuple(old, new, path)
        case MapTypeInfo(), MapTypeInfo():
            return _map(old, new, path)
    before, now = element_type(old), element_type(new)
    if type(old) is type(new) and before is not None and now is not None:
        return _list(_compare(before, now, f"{path}[]"))
    return _refused(old, new, path)


def _refused(old: TypeInformation, new: TypeInformation, path: str) -> Incompatible:
    sentence = f"not every value of {type_signature(old)} is one of {type_signature(new)}"
    return Incompatible(_at(path, sentence))


def _at(path: str, sentence: str) -> str:
    return f"in {path.lstrip('.')}, {sentence}" if path else sentence


def _basic(old: BasicType, new: BasicType) -> Migration | None:
    if old in _INTEGERS and new in _INTEGERS and _INTEGERS.index(old) < _INTEGERS.index(new):
        return Migration(identity, same_bytes=new is not BasicType.BIG_INT)
    if new is BasicType.DOUBLE:
        if old is BasicType.FLOAT:
            return Migration(identity, same_bytes=True)
        if old in _EXACT_IN_DOUBLE:
            return Migration(float, same_bytes=False)
    return None


def _tuple(old: TupleTypeInfo, new: TupleTypeInfo, path: str) -> Compatibility:
    if len(old.field_types) != len(new.field_types):
        sentence = (
            f"a tuple of {len(old.field_types)} fields is none of {len(new.field_types)}; "
            "only the fields of a named row can be added and removed"
        )
        return Incompatible(_at(path, sentence))
    converts: list[Convert] = []
    same_bytes = True
    pairs = zip(old.field_types, new.field_types, strict=True)
    for position, (before, now) in enumerate(pairs):
        found = _compare(before, now, f"{path}.f{position}")
        if isinstance(found, Incompatible):
            return found
        converts.append(_convert_of(found))
        same_bytes &= _keeps_bytes(found)

    def convert(value: Any) -> Any:
        return tuple([each(field) for each, field in zip(converts, value, strict=True)])

    return Migration(convert, same_bytes)


def _row(old: RowTypeInfo, new: RowTypeInfo, path: str) -> Compatibility:
    fields: list[tuple[int | None, Convert]] = []
    same_bytes = old.field_names == new.field_names
    for name, now in zip(new.field_names, new.field_types, strict=True):
        if name not in old.field_names:
            fields.append((None, identity))
            continue
        position = old.get_field_index(name)
        found = _compare(old.field_types[position], now, f"{path}.{name}")
        if isinstance(found, Incompatible):
            return found
        fields.append((position, _unless_none(_convert_of(found))))
        same_bytes &= _keeps_bytes(found)
    names = new.get_field_names()

    def convert(row: Any) -> Row:
        values = row._values
        migrated = Row(*[None if at is None else each(values[at]) for at, each in fields])
        migrated.set_field_names(list(names))
        migrated.set_row_kind(row.get_row_kind())
        return migrated

    return Migration(convert, same_bytes)


def _list(element: Compatibility) -> Compatibility:
    if isinstance(element, Incompatible):
        return element
    convert_element = _unless_none(_convert_of(element))
    return Migration(lambda values: list(map(convert_element, values)), _keeps_bytes(element))


def _map(old: MapTypeInfo, new: MapTypeInfo, path: str) -> Compatibility:
    if old.key != new.key:
        was, now = type_signature(old.key), type_signature(new.key)
        sentence = f"the keys of a map stay {was}: they cannot become {now}"
        return Incompatible(_at(path, sentence))
    value = _compare(old.value, new.value, f"{path}[]")
    if isinstance(value, Incompatible):
        return value
    convert_value = _unless_none(_convert_of(value))

    def convert(mapping: Any) -> Any:
        return {key: convert_value(item) for key, item in mapping.items()}

    return Migration(convert, _keeps_bytes(value))


def _convert_of(found: AsIs | Migration) -> Convert:
    return identity if isinstance(found, AsIs) else found.convert


def _keeps_bytes(found: AsIs | Migration) -> bool:
    return isinstance(found, AsIs) or found.same_bytes


def _unless_none(convert: Convert) -> Convert:
    return convert if convert is identity else or_none(convert)
