"""User-defined watermark generators, from micro-batch to micro-batch.

The fields of a generator go with the acknowledgement to the driver, from there to the worker that
runs the next micro-batch, and into checkpoints. Its class does not: a generator is always created
by the program, and then gets its fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.common import pickling
from penstock.common.watermark_strategy import WatermarkGenerator
from penstock.errors import MethodCall, StepError
from penstock.graph.job_graph import Node
from penstock.task.failure import StepFailed, calling
from penstock.task.messages import GeneratorInput, GeneratorState


class WatermarkGenerators:
    """The generators of one subtask; kept while the worker keeps its functions."""

    def __init__(self) -> None:
        self._live: dict[tuple[int, str], tuple[str, WatermarkGenerator]] = {}

    def take(self, node: Node, split: str, kept: GeneratorInput | None) -> WatermarkGenerator:
        """Return the generator of a split as the last micro-batch left it."""
        version, live = self._live.get((node.id, split), ("", None))
        if live is not None and kept is not None and version == kept.version:
            return live
        return create_generator(node, None if kept is None else kept.state)

    def keep(self, node: Node, split: str, generator: WatermarkGenerator, version: str) -> None:
        """Keep a generator, in case the next micro-batch continues with this version."""
        self._live[node.id, split] = version, generator


def create_generator(node: Node, state: GeneratorState | None = None) -> WatermarkGenerator:
    """Create a generator, with the fields of an older one if it has the same class."""
    assert node.watermarks is not None
    assert node.watermarks.generator is not None
    with calling(node.name, "creating its watermark generator"):
        generator = node.watermarks.generator()
    if state is not None and state.kind == type(generator).__qualname__:
        with calling(node.name, f"restoring the fields of a {state.kind}"):
            _set_fields(generator, pickling.loads(state.fields))
    return generator


def snapshot_generator(
    node: Node, generator: WatermarkGenerator, dumps: Callable[[Any], bytes] = pickling.dumps
) -> GeneratorState:
    """Return the state of a generator."""
    kind = type(generator).__qualname__
    try:
        return GeneratorState(kind, dumps(generator.__getstate__()))
    except Exception as error:
        cause = (
            f"the fields of a {kind} cannot be pickled, which checkpoints need: {error}; leave "
            "fields that __init__() creates out of __getstate__()"
        )
        raise StepFailed(
            StepError(node.name, MethodCall("its watermark generator"), cause)
        ) from error


def _set_fields(generator: Any, fields: Any) -> None:
    if fields is None:
        return
    set_state = getattr(generator, "__setstate__", None)
    if set_state is not None:
        set_state(fields)
        return
    plain, slots = fields if isinstance(fields, tuple) else (fields, None)
    if plain:
        vars(generator).update(plain)
    for name, value in (slots or {}).items():
        setattr(generator, name, value)
