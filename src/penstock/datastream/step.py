"""What streams and sinks have in common: each stands for a step of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from penstock.common.missing_names import AsksForPyFlink
from penstock.errors import InvalidJobError
from penstock.graph.transformation import Exchange, Transformation, Upstream

if TYPE_CHECKING:
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["DataStreamSink", "Step", "at_least_one"]


class Step(AsksForPyFlink):
    """Settings shared by streams and sinks: they all belong to one transformation."""

    def __init__(self, env: StreamExecutionEnvironment, upstreams: tuple[Upstream, ...]) -> None:
        self._env = env
        self._upstreams = upstreams

    @property
    def _transformation(self) -> Transformation:
        if len(self._upstreams) != 1:
            message = "a union is no step of its own: set this on the steps before or behind it"
            raise InvalidJobError(message)
        (upstream,) = self._upstreams
        exchange = upstream.partitioning.exchange
        if exchange is not Exchange.AUTO:
            named = {Exchange.HASH: "key_by", Exchange.CUSTOM: "partition_custom"}
            how = named.get(exchange, exchange.value)
            message = f"{how}() is no step of its own: set this on the step before or behind it"
            raise InvalidJobError(message)
        if upstream.tag is not None:
            message = (
                f"side output {upstream.tag.tag_id!r} is no step of its own: set this on the step "
                "it comes from, or on the one behind it"
            )
            raise InvalidJobError(message)
        return upstream.transformation

    def name(self, name: str) -> Self:
        """Name this step; names appear in messages, metrics and plans."""
        self._transformation.name = name
        return self

    def uid(self, uid: str) -> Self:
        """Give this step an identity that survives changes of the program."""
        self._transformation.uid = uid
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Set how many subtasks this step has."""
        self._transformation.parallelism = at_least_one("parallelism", parallelism)
        return self

    def set_description(self, description: str) -> Self:
        """Describe this step in longer words."""
        self._transformation.description = description
        return self

    def disable_chaining(self) -> Self:
        """Give this step a stage of its own."""
        self._transformation.disable_chaining = True
        return self

    def slot_sharing_group(self, slot_sharing_group: Any) -> Self:
        """Accept Flink's resource hint; Spark's slots are all alike."""
        return self


class DataStreamSink(Step):
    """The end of a stream."""


def at_least_one(what: str, number: int) -> int:
    """Return the number, or refuse it."""
    if not isinstance(number, int) or number < 1:
        message = f"{what} must be a whole number of at least 1; got {number!r}"
        raise InvalidJobError(message)
    return number
