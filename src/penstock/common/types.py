"""Rows under the module name PyFlink gives them."""

from penstock.common.row import Row, RowKind

__all__ = ["Row", "RowKind"]
