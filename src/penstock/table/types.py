"""PyFlink's table types; each is one of ``Types``.

Some formats of PyFlink take a row type of tables, and programs can use it unchanged:
``DataTypes.ROW([DataTypes.FIELD("n", DataTypes.BIGINT())])`` is
``Types.ROW_NAMED(["n"], [Types.LONG()])``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types

__all__ = ["DataTypes", "RowField"]


class RowField(NamedTuple):
    """A field of a row."""

    name: str
    data_type: TypeInformation


class DataTypes:
    """Table types. All are nullable, and lengths and precisions are not checked."""

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> TypeInformation:
        """Return STRING."""
        return Types.STRING()

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> TypeInformation:
        """Return STRING."""
        return Types.STRING()

    @staticmethod
    def STRING(nullable: bool = True) -> TypeInformation:
        """Return STRING."""
        return Types.STRING()

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> TypeInformation:
        """Return BOOLEAN."""
        return Types.BOOLEAN()

    @staticmethod
    def BINARY(length: int, nullable: bool = True) -> TypeInformation:
        """Return PRIMITIVE_ARRAY(BYTE)."""
        return Types.PRIMITIVE_ARRAY(Types.BYTE())

    @staticmethod
    def VARBINARY(length: int, nullable: bool = True) -> TypeInformation:
        """Return PRIMITIVE_ARRAY(BYTE)."""
        return Types.PRIMITIVE_ARRAY(Types.BYTE())

    @staticmethod
    def BYTES(nullable: bool = True) -> TypeInformation:
        """Return PRIMITIVE_ARRAY(BYTE)."""
        return Types.PRIMITIVE_ARRAY(Types.BYTE())

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> TypeInformation:
        """Return BIG_DEC: a number keeps all its digits."""
        return Types.BIG_DEC()

    @staticmethod
    def TINYINT(nullable: bool = True) -> TypeInformation:
        """Return BYTE."""
        return Types.BYTE()

    @staticmethod
    def SMALLINT(nullable: bool = True) -> TypeInformation:
        """Return SHORT."""
        return Types.SHORT()

    @staticmethod
    def INT(nullable: bool = True) -> TypeInformation:
        """Return INT."""
        return Types.INT()

    @staticmethod
    def BIGINT(nullable: bool = True) -> TypeInformation:
        """Return LONG."""
        return Types.LONG()

    @staticmethod
    def FLOAT(nullable: bool = True) -> TypeInformation:
        """Return FLOAT."""
        return Types.FLOAT()

    @staticmethod
    def DOUBLE(nullable: bool = True) -> TypeInformation:
        """Return DOUBLE."""
        return Types.DOUBLE()

    @staticmethod
    def DATE(nullable: bool = True) -> TypeInformation:
        """Return SQL_DATE."""
        return Types.SQL_DATE()

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> TypeInformation:
        """Return SQL_TIME."""
        return Types.SQL_TIME()

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> TypeInformation:
        """Return SQL_TIMESTAMP."""
        return Types.SQL_TIMESTAMP()

    @staticmethod
    def TIMESTAMP_LTZ(precision: int = 6, nullable: bool = True) -> TypeInformation:
        """Return INSTANT."""
        return Types.INSTANT()

    @staticmethod
    def ARRAY(element_type: TypeInformation, nullable: bool = True) -> TypeInformation:
        """Return OBJECT_ARRAY, a list whose elements may be None."""
        return Types.OBJECT_ARRAY(element_type)

    @staticmethod
    def MAP(
        key_type: TypeInformation, value_type: TypeInformation, nullable: bool = True
    ) -> TypeInformation:
        """Return MAP."""
        return Types.MAP(key_type, value_type)

    @staticmethod
    def FIELD(name: str, data_type: TypeInformation, description: str | None = None) -> RowField:
        """Name a field of a row."""
        return RowField(name, data_type)

    @staticmethod
    def ROW(row_fields: Sequence[RowField] = (), nullable: bool = True) -> RowTypeInfo:
        """Return ROW_NAMED."""
        names, types = [f.name for f in row_fields], [f.data_type for f in row_fields]
        return Types.ROW_NAMED(names, types)
