"""The error for methods of the Table API that are not supported."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from penstock.errors import NoTableApiError


class ExplainsMissingTableApi:
    """Raises an error for methods that PyFlink has and penstock has not."""

    __slots__ = ()

    if not TYPE_CHECKING:  # so that type checkers report misspelled names

        def __getattr__(self, name: str) -> NoReturn:
            method = f"{type(self).__qualname__}.{name}"
            if name.startswith("_"):
                raise AttributeError(method)
            raise NoTableApiError(method)
