"""The fixed cost of a micro-batch with `transformWithState` as the keyed step."""

from __future__ import annotations

from benchmarks import transform_with_state
from benchmarks.fixed_cost import StructuredChain

CONTENDER = StructuredChain(
    transform_with_state.PER_RECORD.build, "update", transform_with_state.SETTINGS
)
