from __future__ import annotations

import pytest

from penstock.datastream import CheckpointedFunction, CheckpointListener, MapFunction
from penstock.datastream.functions import FunctionInitializationContext, FunctionSnapshotContext


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
