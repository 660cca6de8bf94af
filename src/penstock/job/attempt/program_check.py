"""Detects that a different program is started under the id of a job."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import DifferentProgramError, NonRestoredStateError, RestoreMismatchError
from penstock.job.context import JobContext
from penstock.job.restore.snapshot_reader import Snapshot

logger = logging.getLogger("penstock.job")


@contextmanager
def checking_program(context: JobContext, snapshot: Snapshot) -> Iterator[None]:
    """Say so if the job's own snapshot does not match the program because it is another one's.

    Unnamed jobs have the same name and so the same id: two of them easily share a directory.

    Raises:
        DifferentProgramError: the snapshot does not match, and is that of another program.
    """
    job, program, other = context.job_dir.key, context.program.program, _last_program(context)
    is_renamed = program is not None and other is not None and Path(program).name != other.name
    uids = {str(n.uid) for stage in context.plan.stages for n in stage.nodes}
    has_nothing = not uids & {operator.uid for operator in snapshot.metadata.operators}
    try:
        yield
    except (NonRestoredStateError, RestoreMismatchError) as mismatch:
        if snapshot.is_own and (is_renamed or has_nothing):
            raise DifferentProgramError(job, str(other or "?"), str(mismatch)) from mismatch
        raise
    if snapshot.is_own and is_renamed:
        logger.warning(
            "Job %s was last run by %s; %s continues with its state. If it is another job, give it "
            "its own id with --job-id, or start it from scratch with --fresh",
            job,
            other,
            program,
        )


def _last_program(context: JobContext) -> Path | None:
    facts = context.job_dir.read_facts()
    return None if facts is None or facts.program is None else Path(facts.program)
