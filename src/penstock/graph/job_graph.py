"""The job graph: the operators of a program, validated and with all uids assigned."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.common.text.tolerant_json import representable
from penstock.common.typeinfo import TypeInformation
from penstock.errors import DuplicateUidError, InvalidJobError
from penstock.graph.transformation import (
    Exchange,
    OperatorKind,
    Partitioning,
    Transformation,
    Upstream,
    common_type,
)
from penstock.ids import OperatorUid
from penstock.state.key_groups import HIGHEST_MAX_PARALLELISM, default_max_parallelism

if TYPE_CHECKING:
    from penstock.common.watermark_strategy import WatermarkStrategy
    from penstock.datastream.output_tag import OutputTag
    from penstock.datastream.state import MapStateDescriptor


@dataclass(frozen=True, slots=True)
class Edge:
    """A stream of records from one node to another."""

    source: int
    target: int
    partitioning: Partitioning
    input: int = 0
    """The input of the target that they belong to: 1 for the second of two connected streams."""
    tag: OutputTag | None = None
    """The side output of the source that they come from, None for its main output."""


@dataclass(frozen=True, slots=True)
class Node:
    """One operator of the job."""

    id: int
    kind: OperatorKind
    name: str
    uid: OperatorUid
    function: Any
    input_type: TypeInformation | None
    output_type: TypeInformation | None
    parallelism: int
    max_parallelism: int
    derives_max_parallelism: bool
    """Whether the program did not set it: a restored job then keeps the one it had."""
    inputs: tuple[Edge, ...]
    may_chain: bool
    """Whether it may be chained to its upstream operator."""
    may_be_followed: bool
    """Whether other operators may be chained to it."""
    call_site: str
    broadcast_states: tuple[MapStateDescriptor, ...] = ()
    """The states of its broadcast side."""
    description: str | None = None
    watermarks: WatermarkStrategy | None = None
    """How it generates watermarks, if it does."""
    has_time: bool = False
    """Whether the records it emits have event time."""


@dataclass(frozen=True, slots=True)
class JobGraph:
    """All operators of a job in topological order."""

    name: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class GraphSettings:
    """The environment's defaults for operators that do not set a value themselves."""

    parallelism: int
    max_parallelism: int | None = None
    chaining: bool = True
    generates_uids: bool = True
    """Whether steps without a uid get one."""


def build_job_graph(
    name: str, sinks: Sequence[Transformation], settings: GraphSettings
) -> JobGraph:
    """Build the job graph of everything the sinks depend on.

    Names and uids may come from anywhere, for example from a command line that is not UTF-8.

    Raises:
        InvalidJobError: there is nothing to run, or a step's settings contradict each other.
        DuplicateUidError: two steps have the same uid.
    """
    if not sinks:
        msg = "no sink: end a stream with print(), sink_to() or a collect"
        raise InvalidJobError(msg)
    ordered = _topological(sinks)
    uids = _uids(ordered, settings)
    frozen: dict[int, Node] = {}
    for t in ordered:
        frozen[t.id] = _freeze(t, uids[t.id], settings, frozen)
    for node in frozen.values():
        _check(node, frozen)
    return JobGraph(representable(name), tuple(frozen.values()))


def _topological(sinks: Sequence[Transformation]) -> list[Transformation]:
    seen: dict[int, Transformation] = {}
    todo = list(sinks)
    while todo:
        t = todo.pop()
        if t.id not in seen:
            seen[t.id] = t
            todo.extend(u.transformation for u in t.upstreams)
    # Ids are assigned in the order of construction, and a step is built after its inputs.
    return [seen[i] for i in sorted(seen)]


def _uids(ordered: Iterable[Transformation], settings: GraphSettings) -> dict[int, OperatorUid]:
    uids: dict[int, OperatorUid] = {}
    sites: dict[str, str] = {}
    ordinals: Counter[tuple[str, ...]] = Counter()
    for t in ordered:
        if t.uid == "":
            message = f"step {t.name!r} at {t.call_site} has an empty uid"
            raise InvalidJobError(message)
        if t.uid is None and not settings.generates_uids:
            message = (
                f"step {t.name!r} at {t.call_site} has no uid, and automatic uids are disabled: "
                "set one with uid(), or call enable_auto_generated_uids()"
            )
            raise InvalidJobError(message)
        if t.uid is not None:
            uid = representable(t.uid)
        else:
            signature = (t.kind.value, *(_input_signature(u, uids) for u in t.upstreams))
            ordinals[signature] += 1
            text = "\n".join((*signature, str(ordinals[signature])))
            uid = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        if uid in sites:
            raise DuplicateUidError(uid, sites[uid], t.call_site)
        sites[uid] = t.call_site
        uids[t.id] = OperatorUid(uid)
    return uids


def _input_signature(upstream: Upstream, uids: dict[int, OperatorUid]) -> str:
    """Return the text for an input of a step that is hashed into the step's automatic uid."""
    exchange, input_ = upstream.partitioning.exchange.value, upstream.input
    while (before := _before_decoupling(upstream)) is not None:
        upstream = before
    text = f"{exchange}:{uids[upstream.transformation.id]}"
    if upstream.tag is not None:
        text = f"{text}/{upstream.tag.tag_id}"
    # The first input has no prefix: adding one would change the uids of existing jobs.
    return f"{input_}:{text}" if input_ else text


def _before_decoupling(upstream: Upstream) -> Upstream | None:
    """Return the upstream of a decoupling: decouple() must not change the uids after it."""
    step = upstream.transformation
    if step.kind is not OperatorKind.DECOUPLE or len(step.upstreams) != 1:
        return None
    (before,) = step.upstreams
    return before if before.partitioning.exchange is Exchange.AUTO else None


def _freeze(
    t: Transformation, uid: OperatorUid, settings: GraphSettings, before: Mapping[int, Node]
) -> Node:
    parallelism = _parallelism(t, settings)
    max_parallelism = (
        t.max_parallelism or settings.max_parallelism or default_max_parallelism(parallelism)
    )
    if not 0 < max_parallelism <= HIGHEST_MAX_PARALLELISM:
        msg = (
            f"step {t.name!r}: max parallelism must be between 1 and {HIGHEST_MAX_PARALLELISM}; "
            f"got {max_parallelism}"
        )
        raise InvalidJobError(msg)
    if parallelism > max_parallelism:
        msg = (
            f"step {t.name!r}: parallelism {parallelism} is above its max parallelism "
            f"{max_parallelism}; raise set_max_parallelism() or lower set_parallelism()"
        )
        raise InvalidJobError(msg)
    edges = tuple(
        Edge(u.transformation.id, t.id, u.partitioning, u.input, u.tag) for u in t.upstreams
    )
    return Node(
        id=t.id,
        kind=t.kind,
        name=representable(t.name),
        uid=uid,
        function=t.function,
        input_type=common_type(t.upstreams),
        output_type=t.output_type,
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        derives_max_parallelism=not (t.max_parallelism or settings.max_parallelism),
        inputs=edges,
        may_chain=settings.chaining and not (t.start_new_chain or t.disable_chaining),
        may_be_followed=not t.disable_chaining,
        call_site=t.call_site,
        broadcast_states=t.broadcast_states,
        description=None if t.description is None else representable(t.description),
        watermarks=t.watermarks,
        has_time=t.watermarks is not None
        # Spark's plan makes new rows: they do not keep the event time of its input.
        or (t.kind is not OperatorKind.NATIVE and any(before[e.source].has_time for e in edges)),
    )


def _parallelism(t: Transformation, settings: GraphSettings) -> int:
    if t.parallelism is None and t.kind is OperatorKind.DECOUPLE:
        return max(_parallelism(u.transformation, settings) for u in t.upstreams)
    return t.parallelism or settings.parallelism


def _check(node: Node, nodes: dict[int, Node]) -> None:
    if node.kind is OperatorKind.WINDOW and node.function.assigner.is_event_time():
        _check_time(node, nodes)
    for edge in node.inputs:
        source = nodes[edge.source]
        is_forward = edge.partitioning.exchange is Exchange.FORWARD
        if is_forward and source.parallelism != node.parallelism:
            msg = (
                f"forward() from {source.name!r} (parallelism {source.parallelism}) to "
                f"{node.name!r} (parallelism {node.parallelism}): forward needs equal parallelism; "
                "use rebalance()"
            )
            raise InvalidJobError(msg)


def _check_time(window: Node, nodes: Mapping[int, Node]) -> None:
    """Refuse an event-time window over rows of a Spark plan, which have no event time."""
    todo = [edge.source for edge in window.inputs]
    while todo:
        node = nodes[todo.pop()]
        if node.kind is OperatorKind.NATIVE:
            msg = (
                f"{window.name!r} uses event time, but the rows of step {node.name!r} have none, "
                "because Spark creates new rows: put assign_timestamps_and_watermarks() between "
                "the two"
            )
            raise InvalidJobError(msg)
        if node.watermarks is None:
            todo += [edge.source for edge in node.inputs]
