"""Tags of side outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.common.typeinfo import TypeInformation, Types, check_type
from penstock.errors import InvalidJobError

__all__ = ["OutputTag", "is_tagged"]


class OutputTag:
    """A side output by its id, with the type of its records.

    A function yields `(tag, record)`, and `get_side_output(tag)` of its step returns the records.
    Two tags of one id are the same side output.
    """

    __slots__ = ("tag_id", "type_info")

    def __init__(
        self, tag_id: str, type_info: TypeInformation | Sequence[TypeInformation] | None = None
    ) -> None:
        """Name a side output; a list of types stands for a row of them, no type for any record."""
        if not isinstance(tag_id, str) or not tag_id:
            message = f"an OutputTag needs a non-empty string as its id; got {tag_id!r}"
            raise InvalidJobError(message)
        if isinstance(type_info, list):
            type_info = Types.ROW(type_info)
        check_type(f"the type of OutputTag {tag_id!r}", type_info)
        self.tag_id = tag_id
        self.type_info: TypeInformation = type_info or Types.PICKLED_BYTE_ARRAY()  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self.tag_id)

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r}, {self.type_info!r})"

    def _identity(self) -> tuple[str, TypeInformation]:
        return self.tag_id, self.type_info


def is_tagged(record: Any) -> bool:
    """Tell whether a function's result is for a side output."""
    return isinstance(record, tuple) and bool(record) and isinstance(record[0], OutputTag)
