"""Many rows as the text that COPY reads, at a fraction of what each by itself would cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.common.typeinfo import BasicType, BasicTypeInfo, TupleTypeInfo, TypeInformation
from penstock.state.fitting import INTEGER_BITS

__all__ = ["BlockEncoder", "block_encoder"]

BlockEncoder = Callable[[list[Any]], str | None]
"""Encodes tuples, each as a line with its end; None if any of them needs a closer look."""


def block_encoder(type_info: TypeInformation | None, prefix: str) -> BlockEncoder | None:
    """Return the encoder for tuples of a type, whose lines begin with ``prefix``.

    None for types that it does not know: all but integers, doubles and texts, which an
    f-string shows as COPY wants to have them.
    """
    if not isinstance(type_info, TupleTypeInfo):
        return None
    fits = [_column_fit(field) for field in type_info.field_types]
    known = [fit for fit in fits if fit is not None]
    if not fits or len(known) != len(fits):
        return None
    width = len(fits)
    names = ", ".join(f"v{at}" for at in range(width))
    line = "\\t".join(f"{{v{at}}}" for at in range(width))
    source = f"lambda rows: ''.join([f'{prefix}{line}\\n' for {names}, in rows])"
    text: Callable[[list[Any]], str] = eval(source)

    def encode(rows: list[Any]) -> str | None:
        if set(map(type, rows)) != {tuple} or set(map(len, rows)) != {width}:
            return None
        columns = zip(*rows, strict=True)
        if not all(fit(column) for fit, column in zip(known, columns, strict=True)):
            return None
        return text(rows)

    return encode


def _column_fit(type_info: TypeInformation) -> Callable[[Sequence[Any]], bool] | None:
    """Return the question whether all values of a column are as they should be."""
    if not isinstance(type_info, BasicTypeInfo):
        return None
    if type_info.kind in INTEGER_BITS:
        bound = 1 << (INTEGER_BITS[type_info.kind] - 1)
        return lambda column: (
            set(map(type, column)) == {int} and -bound <= min(column) and max(column) < bound
        )
    if type_info.kind is BasicType.DOUBLE:
        return lambda column: set(map(type, column)) == {float}
    return _are_plain_texts if type_info.kind is BasicType.STRING else None


def _are_plain_texts(column: Sequence[Any]) -> bool:
    if set(map(type, column)) != {str}:
        return False
    # What is printable holds no control character and no lone surrogate.
    joined = "".join(column)
    return joined.isprintable() and "\\" not in joined
