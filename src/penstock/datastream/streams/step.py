"""The common base of streams and sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from penstock.common.pyflink.missing_names import ExplainsMissingMethods
from penstock.errors import InvalidJobError
from penstock.graph.transformation import Exchange, Transformation, Upstream

if TYPE_CHECKING:
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment


class Step(ExplainsMissingMethods):
    """Settings of the transformation that a stream or sink stands for."""

    def __init__(self, env: StreamExecutionEnvironment, upstreams: tuple[Upstream, ...]) -> None:
        self._env = env
        self._upstreams = upstreams

    @property
    def _transformation(self) -> Transformation:
        if len(self._upstreams) != 1:
            message = "a union is not a step: set this on the steps before or after it"
            raise InvalidJobError(message)
        (upstream,) = self._upstreams
        exchange = upstream.partitioning.exchange
        if exchange is not Exchange.AUTO:
            named = {Exchange.HASH: "key_by", Exchange.CUSTOM: "partition_custom"}
            how = named.get(exchange, exchange.value)
            message = f"{how}() is not a step: set this on the step before or after it"
            raise InvalidJobError(message)
        if upstream.tag is not None:
            message = (
                f"side output {upstream.tag.tag_id!r} is not a step: set this on the step it comes "
                "from, or on the one after it"
            )
            raise InvalidJobError(message)
        return upstream.transformation

    def name(self, name: str) -> Self:
        """Name this step; names appear in messages, metrics and plans."""
        self._transformation.name = name
        return self

    def uid(self, uid: str) -> Self:
        """Set a uid, which identifies the step's state when the program changes."""
        self._transformation.uid = uid
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the parallelism of this step."""
        self._transformation.parallelism = at_least_one("parallelism", parallelism)
        return self

    def set_description(self, description: str) -> Self:
        """Set a longer description of this step."""
        self._transformation.description = description
        return self

    def disable_chaining(self) -> Self:
        """Run this step in its own stage."""
        self._transformation.disable_chaining = True
        return self

    def slot_sharing_group(self, slot_sharing_group: Any) -> Self:
        """Accepted without effect: all slots of Spark are alike."""
        return self


class DataStreamSink(Step):
    """The end of a stream."""


def at_least_one(what: str, number: int) -> int:
    """Return a number after checking that it is at least 1."""
    if not isinstance(number, int) or number < 1:
        message = f"{what} must be a whole number of at least 1; got {number!r}"
        raise InvalidJobError(message)
    return number
