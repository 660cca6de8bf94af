"""What programs of every kind share: types, rows, configuration, time."""

from penstock.common.row import Row, RowKind
from penstock.common.typeinfo import TypeInformation, Types

__all__ = ["Row", "RowKind", "TypeInformation", "Types"]
