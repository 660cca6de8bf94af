"""Transformations: the steps of a program, and how records are exchanged between them."""

from __future__ import annotations

import itertools
import os
import sys
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.common.typeinfo import TypeInformation

if TYPE_CHECKING:
    from penstock.common.watermark_strategy import WatermarkStrategy
    from penstock.datastream.output_tag import OutputTag
    from penstock.datastream.state import MapStateDescriptor


class OperatorKind(Enum):
    """What an operator does with a record."""

    SOURCE = "source"
    MAP = "map"
    FLAT_MAP = "flat_map"
    FILTER = "filter"
    PROCESS = "process"
    PROCESS_BATCH = "process_batch"
    KEYED_PROCESS_BATCH = "keyed_process_batch"
    ASSIGN_TIMESTAMPS = "assign_timestamps"
    """Assigns timestamps to records and generates watermarks."""
    KEYED_MAP = "keyed_map"
    KEYED_FLAT_MAP = "keyed_flat_map"
    KEYED_FILTER = "keyed_filter"
    KEYED_PROCESS = "keyed_process"
    REDUCE = "reduce"
    WINDOW = "window"
    CO_MAP = "co_map"
    CO_FLAT_MAP = "co_flat_map"
    CO_PROCESS = "co_process"
    KEYED_CO_MAP = "keyed_co_map"
    KEYED_CO_FLAT_MAP = "keyed_co_flat_map"
    KEYED_CO_PROCESS = "keyed_co_process"
    BROADCAST_PROCESS = "broadcast_process"
    KEYED_BROADCAST_PROCESS = "keyed_broadcast_process"
    ASYNC = "async"
    """Calls an asynchronous function, many records at a time."""
    DECOUPLE = "decouple"
    """Does nothing but begin a stage, which runs its own micro-batches."""
    NATIVE = "native"
    """A plan that Spark runs over the rows of its input, at the head of a stage."""
    SINK = "sink"

    @property
    def is_keyed(self) -> bool:
        """Whether the operator has keyed state."""
        return self in _KEYED

    @property
    def begins_stage(self) -> bool:
        """Whether it always starts a stage, and a pipelined region."""
        return self in (OperatorKind.DECOUPLE, OperatorKind.NATIVE)

    @property
    def has_two_inputs(self) -> bool:
        """Whether the operator has two connected streams as inputs."""
        return self in _TWO_INPUTS

    @property
    def has_broadcast_side(self) -> bool:
        """Whether its second input is broadcast: every subtask gets all of it, before the other."""
        return self in _BROADCAST_SIDE


_KEYED = {k for k in OperatorKind if k.value.startswith("keyed_")} | {
    OperatorKind.REDUCE,
    OperatorKind.WINDOW,
}
_BROADCAST_SIDE = {OperatorKind.BROADCAST_PROCESS, OperatorKind.KEYED_BROADCAST_PROCESS}
_TWO_INPUTS = _BROADCAST_SIDE | {
    k for k in OperatorKind if k.value.removeprefix("keyed_").startswith("co_")
}


class Exchange(Enum):
    """How records are distributed among the subtasks of the next operator."""

    AUTO = "auto"
    """Forward where the parallelism agrees, else rebalance."""
    FORWARD = "forward"
    REBALANCE = "rebalance"
    RESCALE = "rescale"
    SHUFFLE = "shuffle"
    BROADCAST = "broadcast"
    GLOBAL = "global"
    HASH = "hash"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class Partitioning:
    """An exchange, with its key selector or the user's partitioner."""

    exchange: Exchange
    key_selector: Any = None
    key_type: TypeInformation | None = None
    partitioner: Any = None


AUTO = Partitioning(Exchange.AUTO)

_ids = itertools.count(1)


@dataclass(slots=True, eq=False)
class Transformation:
    """One step of a program while it is being written; frozen later into a `Node`."""

    kind: OperatorKind
    name: str
    function: Any
    upstreams: tuple[Upstream, ...] = ()
    output_type: TypeInformation | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    uid: str | None = None
    description: str | None = None
    start_new_chain: bool = False
    disable_chaining: bool = False
    broadcast_states: tuple[MapStateDescriptor, ...] = ()
    side_outputs: dict[str, OutputTag] = field(default_factory=dict)
    """The side outputs that are read, by id."""
    watermarks: WatermarkStrategy | None = None
    """Of a source, or of a step that assigns timestamps."""
    id: int = field(default_factory=lambda: next(_ids))
    call_site: str = field(default_factory=lambda: user_call_site())


@dataclass(frozen=True, slots=True)
class Upstream:
    """An input of a step: the step it comes from, its partitioning, and its number."""

    transformation: Transformation
    partitioning: Partitioning = AUTO
    input: int = 0
    """1 for the second of two connected streams; the streams of a union share an input."""
    tag: OutputTag | None = None
    """The side output of the upstream, None for its main output."""

    @property
    def output_type(self) -> TypeInformation | None:
        """The declared type of the records."""
        return self.transformation.output_type if self.tag is None else self.tag.type_info


def common_type(upstreams: tuple[Upstream, ...]) -> TypeInformation | None:
    """Return the type that all inputs declare; None if one of them does not."""
    types = [u.output_type for u in upstreams]
    return types[0] if types and all(t == types[0] for t in types) else None


_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


def user_call_site() -> str:
    """Return `file:line` of the innermost caller outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_PACKAGE, "<string>")):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
