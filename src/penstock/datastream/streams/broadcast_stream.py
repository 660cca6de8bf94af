"""Broadcast streams, and streams that are connected with one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.common.pyflink.missing_names import ExplainsMissingMethods
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from penstock.datastream.state import MapStateDescriptor
from penstock.errors import InvalidJobError
from penstock.graph.transformation import OperatorKind

if TYPE_CHECKING:
    from penstock.datastream.data_stream import DataStream


class BroadcastStream(ExplainsMissingMethods):
    """A stream that is sent to every subtask, and the broadcast states that it fills there.

    Its only use is to `connect` another stream with it.
    """

    def __init__(
        self,
        input_stream: DataStream,
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        _check_descriptors(broadcast_state_descriptors)
        self.input_stream = input_stream
        self.broadcast_state_descriptors = list(broadcast_state_descriptors)


class BroadcastConnectedStream(ExplainsMissingMethods):
    """A stream, keyed or not, and a broadcast stream as the inputs of one function.

    In a micro-batch the broadcast records come before the others, and in BATCH mode all of them
    do. Apart from that, the order of records of both streams is undefined.
    """

    def __init__(
        self,
        non_broadcast_stream: DataStream,
        broadcast_stream: BroadcastStream,
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = list(broadcast_state_descriptors)

    def process(
        self,
        func: BroadcastProcessFunction[Any, Any, Any]
        | KeyedBroadcastProcessFunction[Any, Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Run a function over the records of both streams.

        It is a `KeyedBroadcastProcessFunction` if the stream is keyed, else a
        `BroadcastProcessFunction`.
        """
        stream = self.non_broadcast_stream
        kind, name = OperatorKind.BROADCAST_PROCESS, "Co-Process-Broadcast"
        if stream._is_keyed:
            kind, name = OperatorKind.KEYED_BROADCAST_PROCESS, "Keyed-Co-Process-Broadcast"
        _check_function(func, is_keyed=stream._is_keyed)
        rules = self.broadcast_stream.input_stream
        processed = stream._then_with(rules, kind, name, func, output_type)
        processed._transformation.broadcast_states = tuple(self.broadcast_state_descriptors)
        return processed


def _check_descriptors(descriptors: Sequence[Any]) -> None:
    for descriptor in descriptors:
        if not isinstance(descriptor, MapStateDescriptor):
            message = f"broadcast() needs MapStateDescriptors; got {descriptor!r}"
            raise InvalidJobError(message)
        if descriptor.ttl_config is not None:
            message = (
                f"broadcast state {descriptor.name!r} cannot have a time-to-live: remove "
                "enable_time_to_live(), and remove old entries when a broadcast record arrives"
            )
            raise InvalidJobError(message)
    for name, times in Counter(d.name for d in descriptors).items():
        if times > 1:
            message = f"broadcast() got {times} states named {name!r}: use distinct names"
            raise InvalidJobError(message)


def _check_function(func: Any, *, is_keyed: bool) -> None:
    plain, keyed = BroadcastProcessFunction, KeyedBroadcastProcessFunction
    wanted: type = keyed if is_keyed else plain
    if isinstance(func, type) and issubclass(func, (plain, keyed)):
        message = f"process() needs an instance; got the class: did you mean {func.__name__}()?"
        raise InvalidJobError(message)
    if not isinstance(func, wanted):
        side = "a keyed stream" if is_keyed else "a stream without keys"
        message = (
            f"process() of {side} connected with a broadcast one needs a {wanted.__name__}; "
            f"got {func!r}"
        )
        raise InvalidJobError(message)
