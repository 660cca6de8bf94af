"""One keyed state of an operator, as a snapshot describes it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import pyarrow as pa

from penstock.common.typeinfo import TypeInformation
from penstock.savepoint.layout import StateColumns, columns_for
from penstock.state.keys import KeyCodec
from penstock.state.registry.meta_info import (
    LIST_STATE,
    MAP_STATE,
    TIMERS,
    StateMetaInfo,
)
from penstock.types.signature import parse_signature


@dataclass(frozen=True)
class KeyedState:
    """A state by name; its columns follow from what the snapshot says, not from a program."""

    uid: str
    """Of its operator."""
    operator: str
    """The name of its operator."""
    name: str
    info: StateMetaInfo
    """In the newest type, if only some subtasks have migrated it."""
    key_type: str
    max_parallelism: int

    def __getstate__(self) -> dict[str, object]:
        """Travel without the columns, which are computed again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def kind(self) -> str:
        """Its kind, such as `map state`."""
        return self.info.kind

    @property
    def is_map(self) -> bool:
        """Whether it has a row for each entry of a map."""
        return self.info.kind == MAP_STATE

    @property
    def is_list(self) -> bool:
        """Whether its values are lists."""
        return self.info.kind == LIST_STATE

    @property
    def has_one_entry(self) -> bool:
        """Whether a key has one entry at most, and that is no list."""
        return not (self.info.windows or self.is_map or self.is_list or self.are_timers)

    @property
    def are_timers(self) -> bool:
        """Whether its rows are timers: `key` is their time, `map_key` the key they belong to."""
        return self.info.kind == TIMERS

    @cached_property
    def columns(self) -> StateColumns:
        """Its columns, which convert stored bytes."""
        return columns_for(self.info, self.key_type)

    @cached_property
    def schema(self) -> pa.Schema:
        """The rows of its tables: readable columns first, then the stored keys."""
        return pa.schema(self.columns.fields)

    @cached_property
    def key_codec(self) -> KeyCodec:
        """Encodes its keys."""
        return KeyCodec(self.key_type_info, self.operator)

    @property
    def key_type_info(self) -> TypeInformation | None:
        """The type of its keys, None if none is declared."""
        return parse_signature(self.key_type) if self.key_type else None
