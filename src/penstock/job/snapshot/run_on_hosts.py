"""Runs a function of state files for each subtask, on the host that has the files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, cast

from penstock.errors import PenstockError, StateElsewhereError, UnsharedHostError
from penstock.graph.plan import Stage
from penstock.job.submitter import R, Submitter, W
from penstock.task.layout import AttemptLayout

_TRIES = 3

logger = logging.getLogger("penstock.job")


def run_on_hosts(
    submitter: Submitter,
    stage: Stage,
    layout: AttemptLayout,
    purpose: str,
    function: Callable[[W, int], R],
    work: list[W],
) -> list[R]:
    """Call a function for each subtask, again for those that ran where their files are not.

    A host whose cores were all busy for longer than Spark's locality wait still has them, and the
    checkpoint need not fail.

    Raises:
        StateElsewhereError: the host is gone, or busy all the time.
        UnsharedHostError: Spark always used a host that does not see the work directory.
    """
    results: dict[int, R] = {}
    misplaced: dict[int, _Misplaced] = {}
    for _ in range(_TRIES):
        # One for each subtask, because its position tells the host.
        left = [None if i in results else one for i, one in enumerate(work)]
        call = _Call(function, layout)
        answers = submitter.run_per_subtask(stage.id, purpose, call, left)
        misplaced.clear()
        for subtask, answer in enumerate(answers):
            if isinstance(answer, _Misplaced):
                misplaced[subtask] = answer
            elif subtask not in results:
                results[subtask] = cast(R, answer)
        if not misplaced:
            break
        for found in misplaced.values():
            message = "Stage %r: %s of state is tried again: %s"
            logger.info(message, stage.name, purpose, found.error)
    for found in misplaced.values():
        raise found.error
    return [results[subtask] for subtask in range(len(work))]


@dataclass(frozen=True, slots=True)
class _Misplaced:
    error: PenstockError


@dataclass(frozen=True, slots=True)
class _Call(Generic[W, R]):
    """Calls a function in a task; returns that it ran on a wrong host, so that others count."""

    function: Callable[[W, int], R]
    layout: AttemptLayout

    def __call__(self, work: W | None, task_attempt: int) -> R | _Misplaced | None:
        if work is None:
            return None
        try:
            self.layout.check_host()
            return self.function(work, task_attempt)
        except (StateElsewhereError, UnsharedHostError) as error:
            return _Misplaced(error)
