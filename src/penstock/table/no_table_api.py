"""The answer to all methods of the Table API that are not here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from penstock.errors import NoTableApiError

__all__ = ["AsksForTableApi"]


class AsksForTableApi:
    """Answers for methods that PyFlink has and penstock has not."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker shall find typos

        def __getattr__(self, name: str) -> NoReturn:
            asked_for = f"{type(self).__qualname__}.{name}"
            if name.startswith("_"):
                raise AttributeError(asked_for)
            raise NoTableApiError(asked_for)
