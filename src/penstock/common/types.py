"""Rows, under PyFlink's module name."""

from penstock.common.row import Row, RowKind

__all__ = ["Row", "RowKind"]
