"""Whether a job lets others look up all of its states, not only those it names."""

from __future__ import annotations

from penstock.common.config.pipeline_options import QUERYABLE_STATE
from penstock.serve.jobs.cached_job import JobView


def has_opted_in(view: JobView | None) -> bool:
    """Return whether all states of a job are queryable."""
    facts = None if view is None else view.facts
    value = "" if facts is None else facts.settings.get(QUERYABLE_STATE.key, "")
    return value.lower() == "true"
