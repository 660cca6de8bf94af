"""Types of records, keys and state, under Flink's names.

A type information is a value: two of the same structure are equal, and they hash, pickle and print
the same in every process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.common.pyflink.missing_names import ExplainsMissingMethods
from penstock.errors import InvalidJobError

__all__ = [
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "ListTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SqlTimeType",
    "SqlTimeTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
    "check_type",
    "is_immutable",
]


class TypeInformation(ExplainsMissingMethods):
    """The declared type of a value."""

    __slots__ = ()


def check_type(what: str, type_info: object) -> None:
    """Reject an argument that is neither a type nor None."""
    if type_info is None or isinstance(type_info, TypeInformation):
        return
    forgotten = "; did you forget the parentheses?" if callable(type_info) else ""
    message = f"{what} must be a type such as Types.STRING(); got {type_info!r}{forgotten}"
    raise InvalidJobError(message)


class BasicType(Enum):
    """The basic types, each with the name that Flink prints."""

    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Char"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


class SqlTimeType(Enum):
    """The types of SQL dates and times, each with the name that PyFlink prints."""

    DATE = "DateTypeInfo"
    TIME = "TimeTypeInfo"
    TIMESTAMP = "TimestampTypeInfo"


@dataclass(frozen=True, slots=True, repr=False)
class BasicTypeInfo(TypeInformation):
    """A string, number, boolean or instant."""

    kind: BasicType

    def __repr__(self) -> str:
        return self.kind.value


@dataclass(frozen=True, slots=True, repr=False)
class SqlTimeTypeInfo(TypeInformation):
    """A ``datetime.date``, ``datetime.time`` or ``datetime.datetime``."""

    kind: SqlTimeType

    def __repr__(self) -> str:
        return self.kind.value


@dataclass(frozen=True, slots=True, repr=False)
class PickledBytesTypeInfo(TypeInformation):
    """Any Python object; the type of values without a declared type."""

    def __repr__(self) -> str:
        return "PickledByteArrayTypeInfo"


@dataclass(frozen=True, slots=True, repr=False)
class RowTypeInfo(TypeInformation):
    """A :class:`~penstock.common.Row`; fields without names are called f0, f1, …."""

    field_types: tuple[TypeInformation, ...]
    field_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        types = tuple(self.field_types)
        names = tuple(self.field_names or ()) or _positional_names(len(types))
        if len(names) != len(types):
            message = f"a row type needs one name per field; got {names!r} for {types!r}"
            raise ValueError(message)
        if len(set(names)) != len(names):
            message = f"a row type needs distinct field names; got {names!r}"
            raise ValueError(message)
        object.__setattr__(self, "field_types", types)
        object.__setattr__(self, "field_names", names)

    def get_field_names(self) -> list[str]:
        """Return the field names in order."""
        return list(self.field_names)

    def get_field_types(self) -> list[TypeInformation]:
        """Return the field types in order."""
        return list(self.field_types)

    def get_field_index(self, field_name: str) -> int:
        """Return the position of a field."""
        return self.field_names.index(field_name)

    def __repr__(self) -> str:
        if self.field_names == _positional_names(len(self.field_types)):
            return f"RowTypeInfo({_listed(self.field_types)})"
        pairs = zip(self.field_names, self.field_types, strict=True)
        return f"RowTypeInfo({', '.join(f'{name}: {kind!r}' for name, kind in pairs)})"


@dataclass(frozen=True, slots=True, repr=False)
class TupleTypeInfo(TypeInformation):
    """A Python tuple with a type for each position."""

    field_types: tuple[TypeInformation, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "field_types", tuple(self.field_types))

    def get_field_types(self) -> list[TypeInformation]:
        """Return the field types in order."""
        return list(self.field_types)

    def __repr__(self) -> str:
        return f"TupleTypeInfo({_listed(self.field_types)})"


@dataclass(frozen=True, slots=True, repr=False)
class PrimitiveArrayTypeInfo(TypeInformation):
    """A list of numbers, characters or truth values, none of them None; ``bytes`` for BYTE."""

    element: TypeInformation

    def __post_init__(self) -> None:
        _check_element(self.element, _PRIMITIVES, "primitive")

    def __repr__(self) -> str:
        return f"PrimitiveArrayTypeInfo<{self.element!r}>"


@dataclass(frozen=True, slots=True, repr=False)
class BasicArrayTypeInfo(TypeInformation):
    """A list of numbers, characters, strings or truth values, each of which may be None."""

    element: TypeInformation

    def __post_init__(self) -> None:
        _check_element(self.element, _PRIMITIVES | {BasicType.STRING}, "basic")

    def __repr__(self) -> str:
        return f"BasicArrayTypeInfo<{self.element!r}>"


@dataclass(frozen=True, slots=True, repr=False)
class ObjectArrayTypeInfo(TypeInformation):
    """A list of values of any one type, each of which may be None."""

    element: TypeInformation

    def __repr__(self) -> str:
        return f"ObjectArrayTypeInfo<{self.element!r}>"


@dataclass(frozen=True, slots=True, repr=False)
class MapTypeInfo(TypeInformation):
    """A dict with one type for its keys and one for its values."""

    key: TypeInformation
    value: TypeInformation

    def __repr__(self) -> str:
        return f"MapTypeInfo<{self.key!r}, {self.value!r}>"


@dataclass(frozen=True, slots=True, repr=False)
class ListTypeInfo(TypeInformation):
    """A list of values of one type."""

    element: TypeInformation

    def __repr__(self) -> str:
        return f"ListTypeInfo<{self.element!r}>"


class Types:
    """The types of Flink's DataStream API."""

    @staticmethod
    def STRING() -> TypeInformation:
        """Type of ``str``."""
        return BasicTypeInfo(BasicType.STRING)

    @staticmethod
    def BYTE() -> TypeInformation:
        """Type of ``int`` in 8 bits."""
        return BasicTypeInfo(BasicType.BYTE)

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        """Type of ``bool``."""
        return BasicTypeInfo(BasicType.BOOLEAN)

    @staticmethod
    def SHORT() -> TypeInformation:
        """Type of ``int`` in 16 bits."""
        return BasicTypeInfo(BasicType.SHORT)

    @staticmethod
    def INT() -> TypeInformation:
        """Type of ``int`` in 32 bits."""
        return BasicTypeInfo(BasicType.INT)

    @staticmethod
    def LONG() -> TypeInformation:
        """Type of ``int`` in 64 bits."""
        return BasicTypeInfo(BasicType.LONG)

    @staticmethod
    def FLOAT() -> TypeInformation:
        """Type of ``float``, rounded to 32 bits where it is written."""
        return BasicTypeInfo(BasicType.FLOAT)

    @staticmethod
    def DOUBLE() -> TypeInformation:
        """Type of ``float``."""
        return BasicTypeInfo(BasicType.DOUBLE)

    @staticmethod
    def CHAR() -> TypeInformation:
        """Type of ``str`` of length one."""
        return BasicTypeInfo(BasicType.CHAR)

    @staticmethod
    def BIG_INT() -> TypeInformation:
        """Type of ``int`` of any size."""
        return BasicTypeInfo(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        """Type of ``decimal.Decimal``."""
        return BasicTypeInfo(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT() -> TypeInformation:
        """Type of :class:`~penstock.common.Instant`."""
        return BasicTypeInfo(BasicType.INSTANT)

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        """Type of ``datetime.date``."""
        return SqlTimeTypeInfo(SqlTimeType.DATE)

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        """Type of ``datetime.time``."""
        return SqlTimeTypeInfo(SqlTimeType.TIME)

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        """Type of ``datetime.datetime``."""
        return SqlTimeTypeInfo(SqlTimeType.TIMESTAMP)

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Type of any Python object that pickles."""
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """Type of a row whose fields are called f0, f1, …."""
        return RowTypeInfo(tuple(field_types))

    @staticmethod
    def ROW_NAMED(
        field_names: Sequence[str], field_types: Sequence[TypeInformation]
    ) -> RowTypeInfo:
        """Type of a row with the given field names."""
        return RowTypeInfo(tuple(field_types), tuple(field_names))

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInformation]) -> TupleTypeInfo:
        """Type of a ``tuple``."""
        return TupleTypeInfo(tuple(field_types))

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """Type of a list of numbers, characters or truth values without None."""
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """Type of a list of numbers, characters, strings or truth values."""
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """Type of a list of values of any one type."""
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> TypeInformation:
        """Type of a ``dict``."""
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> TypeInformation:
        """Type of a ``list``."""
        return ListTypeInfo(element_type_info)


def is_immutable(type_info: TypeInformation) -> bool:
    """Tell whether values of this type are immutable."""
    if isinstance(type_info, TupleTypeInfo):
        return all(map(is_immutable, type_info.field_types))
    return isinstance(type_info, BasicTypeInfo | SqlTimeTypeInfo)


_PRIMITIVES = frozenset(
    {
        BasicType.BOOLEAN,
        BasicType.BYTE,
        BasicType.SHORT,
        BasicType.INT,
        BasicType.LONG,
        BasicType.FLOAT,
        BasicType.DOUBLE,
        BasicType.CHAR,
    }
)


def _check_element(element: TypeInformation, allowed: frozenset[BasicType], array: str) -> None:
    if not (isinstance(element, BasicTypeInfo) and element.kind in allowed):
        message = f"invalid element type for a {array} array: {element!r}"
        raise TypeError(message)


def _positional_names(count: int) -> tuple[str, ...]:
    return tuple(f"f{position}" for position in range(count))


def _listed(types: tuple[TypeInformation, ...]) -> str:
    return ", ".join(map(repr, types))
