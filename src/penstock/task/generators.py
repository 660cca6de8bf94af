"""Watermark generators of the user's own, from micro-batch to micro-batch.

The fields of a generator travel: with the acknowledgement to the driver, from there to whichever
worker has the next micro-batch, and into checkpoints. Its class does not: a generator is always
made as the program says, and then given its fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.common import pickling
from penstock.common.watermark_strategy import WatermarkGenerator
from penstock.errors import Called, StepError
from penstock.graph.job_graph import Node
from penstock.task.failure import StepFailed, calling
from penstock.task.messages import GeneratorState, GivenGenerator

__all__ = ["Generators", "freeze_generator", "make_generator"]


class Generators:
    """Those of one subtask; kept while the worker keeps its functions."""

    def __init__(self) -> None:
        self._live: dict[tuple[int, str], tuple[str, WatermarkGenerator]] = {}

    def take(self, node: Node, unit: str, given: GivenGenerator | None) -> WatermarkGenerator:
        """Return the generator of a unit as the micro-batch before left it."""
        version, live = self._live.get((node.id, unit), ("", None))
        if live is not None and given is not None and version == given.version:
            return live
        return make_generator(node, None if given is None else given.state)

    def keep(self, node: Node, unit: str, generator: WatermarkGenerator, version: str) -> None:
        """Have a generator ready, should the next micro-batch go on with this version."""
        self._live[node.id, unit] = version, generator


def make_generator(node: Node, state: GeneratorState | None = None) -> WatermarkGenerator:
    """Return a new generator, with the fields of an older one of its class if there was one."""
    assert node.watermarks is not None
    assert node.watermarks.generator is not None
    with calling(node.name, "making its watermark generator"):
        made = node.watermarks.generator()
    if state is not None and state.kind == _kind(made):
        with calling(node.name, f"giving a {state.kind} the fields it had"):
            _set_fields(made, pickling.loads(state.fields))
    return made


def freeze_generator(
    node: Node, generator: WatermarkGenerator, dumps: Callable[[Any], bytes] = pickling.dumps
) -> GeneratorState:
    """Return a generator as it travels."""
    kind = _kind(generator)
    try:
        return GeneratorState(kind, dumps(generator.__getstate__()))
    except Exception as error:
        cause = (
            f"the fields of a {kind} cannot be pickled, as they must be to go from task to task "
            f"and into checkpoints: {error}; leave out of them in __getstate__() what __init__() "
            "makes anew"
        )
        raise StepFailed(StepError(node.name, Called("its watermark generator"), cause)) from error


def _kind(generator: WatermarkGenerator) -> str:
    return type(generator).__qualname__


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
