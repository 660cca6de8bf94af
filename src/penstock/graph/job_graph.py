"""The job graph: a program, frozen, validated and with every identity settled."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    """Records of one node on their way to another."""

    source: int
    target: int
    partitioning: Partitioning
    input: int = 0
    """Which of the target's inputs they come to: 1 for the second of two connected streams."""
    tag: OutputTag | None = None
    """Which of the source's side outputs they come from, if not from its main output."""


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
    """Whether nobody set it, so that a restored job takes over the one it had."""
    inputs: tuple[Edge, ...]
    may_chain: bool
    """Whether it may go behind the step before it, in the same stage."""
    may_be_followed: bool
    """Whether others may go behind it."""
    call_site: str
    broadcast_states: tuple[MapStateDescriptor, ...] = ()
    """What its broadcast side keeps."""
    description: str | None = None
    watermarks: WatermarkStrategy | None = None
    """How it makes watermarks, if it does."""
    has_time: bool = False
    """Whether the records it emits have event time."""


@dataclass(frozen=True, slots=True)
class JobGraph:
    """All operators of a job in topological order."""

    name: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class GraphSettings:
    """What the environment decides for operators that do not say it themselves."""

    parallelism: int
    max_parallelism: int | None = None
    chaining: bool = True
    generates_uids: bool = True
    """Whether steps may come without a uid."""


def build_job_graph(
    name: str, sinks: Sequence[Transformation], settings: GraphSettings
) -> JobGraph:
    """Freeze everything the sinks depend on.

    Raises:
        InvalidJobError: there is nothing to run, or a step's settings contradict each other.
        DuplicateUidError: two steps were given the same uid.
    """
    if not sinks:
        msg = "no sink: end a stream with print(), sink_to() or a collect"
        raise InvalidJobError(msg)
    ordered = _topological(sinks)
    if not settings.generates_uids:
        _check_given_uids(ordered)
    uids = _uids(ordered)
    frozen: dict[int, Node] = {}
    for t in ordered:
        frozen[t.id] = _freeze(t, uids[t.id], settings, frozen)
    nodes = tuple(frozen.values())
    for node in nodes:
        _check(node, {n.id: n for n in nodes})
    return JobGraph(name, nodes)


def _topological(sinks: Sequence[Transformation]) -> list[Transformation]:
    seen: dict[int, Transformation] = {}
    todo = list(sinks)
    while todo:
        t = todo.pop()
        if t.id not in seen:
            seen[t.id] = t
            todo.extend(u.transformation for u in t.upstreams)
    # Ids are given in the order of construction, and a step is built after its inputs.
    return [seen[i] for i in sorted(seen)]


def _check_given_uids(ordered: Iterable[Transformation]) -> None:
    for t in ordered:
        if t.uid is None:
            message = (
                f"step {t.name!r} at {t.call_site} has no uid, and automatic ones are switched "
                "off: give it one with uid(), or enable_auto_generated_uids()"
            )
            raise InvalidJobError(message)


def _uids(ordered: Iterable[Transformation]) -> dict[int, OperatorUid]:
    uids: dict[int, OperatorUid] = {}
    sites: dict[str, str] = {}
    ordinals: Counter[tuple[str, ...]] = Counter()
    for t in ordered:
        if t.uid == "":
            message = f"step {t.name!r} at {t.call_site} has an empty uid"
            raise InvalidJobError(message)
        if t.uid is not None:
            uid = t.uid
        else:
            signature = (t.kind.value, *(_arrival(u, uids) for u in t.upstreams))
            ordinals[signature] += 1
            text = "\n".join((*signature, str(ordinals[signature])))
            uid = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        if uid in sites:
            raise DuplicateUidError(uid, sites[uid], t.call_site)
        sites[uid] = t.call_site
        uids[t.id] = OperatorUid(uid)
    return uids


def _arrival(upstream: Upstream, uids: dict[int, OperatorUid]) -> str:
    """Spell what comes to a step, for the identity of that step."""
    exchange, input_ = upstream.partitioning.exchange.value, upstream.input
    while (behind := _decoupled(upstream)) is not None:
        upstream = behind
    spelt = f"{exchange}:{uids[upstream.transformation.id]}"
    if upstream.tag is not None:
        spelt = f"{spelt}/{upstream.tag.tag_id}"
    # The first input is not spelt: steps with one were named before there were two.
    return f"{input_}:{spelt}" if input_ else spelt


def _decoupled(upstream: Upstream) -> Upstream | None:
    """Return what stands before a decoupling, which gives the steps behind it no new identity."""
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
        name=t.name,
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
        description=t.description,
        watermarks=t.watermarks,
        has_time=t.watermarks is not None
        # Rows of a plan of Spark's are others than those that went in.
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
    """Refuse a window in event time to which rows come without a time: from a plan of Spark's."""
    todo = [edge.source for edge in window.inputs]
    while todo:
        node = nodes[todo.pop()]
        if node.kind is OperatorKind.NATIVE:
            msg = (
                f"{window.name!r} goes by event time, which the rows of step {node.name!r} do not "
                "have, as Spark makes them anew: put assign_timestamps_and_watermarks() between "
                "the two"
            )
            raise InvalidJobError(msg)
        if node.watermarks is None:
            todo += [edge.source for edge in node.inputs]
