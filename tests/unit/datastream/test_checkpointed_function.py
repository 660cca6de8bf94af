from __future__ import annotations

from typing import Any

import pytest

from penstock.common import Types
from penstock.datastream import CheckpointedFunction, CheckpointListener, MapFunction
from penstock.datastream.functions import FunctionInitializationContext, FunctionSnapshotContext
from penstock.datastream.state import (
    ListState,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateStore,
)
from penstock.errors import InvalidJobError


def test_both_methods_must_be_written() -> None:
    class Half(MapFunction[int, int], CheckpointedFunction):
        def map(self, value: int) -> int:
            return value

        def snapshot_state(self, context: FunctionSnapshotContext) -> None: ...

    with pytest.raises(TypeError, match="initialize_state"):
        Half()  # type: ignore[abstract]


def test_a_function_may_have_state_and_listen() -> None:
    class Both(MapFunction[int, int], CheckpointedFunction, CheckpointListener):
        def map(self, value: int) -> int:
            return value

        def initialize_state(self, context: FunctionInitializationContext) -> None: ...

        def snapshot_state(self, context: FunctionSnapshotContext) -> None: ...

    function = Both()
    function.notify_checkpoint_complete(1)
    function.notify_checkpoint_aborted(2)


def test_broadcast_state_is_refused_by_name() -> None:
    class Lists(OperatorStateStore):
        def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
            raise NotImplementedError

        def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
            raise NotImplementedError

    descriptor = MapStateDescriptor("rules", Types.STRING(), Types.STRING())
    with pytest.raises(InvalidJobError, match="broadcast state is not in this version"):
        Lists().get_broadcast_state(descriptor)
