"""Advice on the checkpoint interval of a job: the models, fitted to its history."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from penstock.checkpoint.history import History
from penstock.client.job_advice import JobAdvice, WhatIf, advise_job
from penstock.models.advice import Advice, Bound, Goals, Outcome, outcome
from penstock.models.checkpoint_cost import observe_checkpoints
from penstock.models.consistency import Consistency
from penstock.models.job_model import JobModel, fit_job
from penstock.redaction import redact
from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call
from penstock.serve.jobs.cached_job import CachedJob, JobView
from penstock.serve.rest.found_jobs import job_of

_POINTS = 80
_AGAIN_S = 60.0
"""The recommended interval on other pages is computed this often."""
_SHORTEST_S, _LONGEST_S = 0.1, 3600.0

logger = logging.getLogger("penstock.serve")

_lock = threading.Lock()
_logged: set[tuple[str, str]] = set()
_recommended: dict[str, tuple[float, float | None]] = {}
"""By the path of a job: when it was computed, and the interval."""


def advice(call: Call) -> dict[str, Any]:
    """Return which interval fits the goals, with the curves it follows from."""
    job, view = job_of(call)
    goals = _goals(call)
    shown = problem = None
    try:
        found, model = advise_job(view.directory, goals, WhatIf()), fitted(job, view)
        if found is not None and model is not None:
            goals = found.goals
            shown = _shown(job, model, found)
    except (OSError, RestError):
        raise
    except Exception as error:
        _log_once(view, error)
        problem = "No model fits the history of this job; the log of the server says why."
    return {"now": time.time(), "goals": asdict(goals), "advice": shown, "problem": problem}


def recommended_interval(view: JobView) -> float | None:
    """Return the interval that fits the default goals, as it was at most a minute ago.

    None if there is none, also because no model fits.
    """
    key, now = str(view.directory.path), time.monotonic()
    with _lock:
        at, interval = _recommended.get(key, (float("-inf"), None))
        if now - at < _AGAIN_S:
            return interval
        _recommended[key] = now, interval
    try:
        found = advise_job(view.directory, Goals(), WhatIf())
    except Exception as error:
        # The rest of the page has nothing to do with it.
        _log_once(view, error)
        return None
    chosen = None if found is None else found.advice.recommended
    interval = None if chosen is None else chosen.interval_s
    with _lock:
        newest = {k: v for k, v in _recommended.items() if now - v[0] < _AGAIN_S}
        _recommended.clear()
        _recommended.update(newest)
        _recommended[key] = now, interval
    return interval


def _log_once(view: JobView, error: Exception) -> None:
    """Log why there is no advice for a job, once for each kind of error."""
    kind = str(view.directory.path), type(error).__name__
    with _lock:
        if kind in _logged:
            return
        _logged.add(kind)
    reason = redact(repr(error))
    logger.warning("Job %s gets no advice: %s", view.overview.id, reason, exc_info=error)


def fitted(job: CachedJob, view: JobView) -> JobModel | None:
    """Return the models of a job; None if it has no completed checkpoint."""
    history = History(view.directory.storage)
    steps = [] if view.facts is None else view.facts.plan
    return fit_job(
        list(reversed(job.checkpoints())),
        history.recoveries(),
        history.exceptions(),
        parallelism=max((step.parallelism for step in steps), default=None),
    )


def _goals(call: Call) -> Goals:
    """Return the goals in the query; without any, the same ones as `penstock advise`."""
    names = ("recovery_target", "visibility", "overhead", "failures_per_day")
    given = {name: _number(name, call.flag(name)) for name in names}
    overhead = given["overhead"] or Goals().overhead
    if overhead >= 1:
        raise RestError(400, "overhead is a share below 1")
    is_default = not any(name in call.query for name in names)
    target = Goals().recovery_target_s if is_default else given["recovery_target"]
    return Goals(target, given["visibility"], overhead, given["failures_per_day"])


def _number(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise RestError(400, f"{name} is a number above 0")
    return value


def _shown(job: CachedJob, model: JobModel, advised: JobAdvice) -> dict[str, Any]:
    found = advised.advice
    seen = observe_checkpoints(list(reversed(job.checkpoints())))
    rate = model.load.rate
    return {
        "verdict": found.verdict.value,
        "bounds": [_bound(bound, found) for bound in found.bounds],
        "cheapest_s": found.cheapest_s,
        "failures_per_day": advised.goals.failures_per_day,
        "recommended": _outcome(found.recommended),
        "current": _outcome(found.current),
        "configuration": [f"{k}: {v}" for k, v in advised.configuration.items()],
        "levers": [
            {"how": lever.how, "configuration": [f"{k}: {v}" for k, v in lever.configuration]}
            for lever in found.levers
        ],
        "curve": [_outcome(outcome(model, float(t))) for t in _grid(found)],
        "observations": [
            {"interval_s": o.interval_s, "duration_s": o.duration_s}
            for o in seen
            if o.interval_s is not None and o.interval_s > 0
        ],
        "input_rate": None if rate is None else rate.value,
        "consistency": _consistency(model.consistency),
        "missing": advised.missing,
        "guarantee": advised.guarantee.value,
    }


def _grid(found: Advice) -> Any:
    """Return intervals around those of interest, for curves."""
    outcomes = [o.interval_s for o in (found.recommended, found.current) if o is not None]
    shortest = max(_SHORTEST_S / 10, min([_SHORTEST_S, *(t / 4 for t in outcomes)]))
    longest = max([60.0, *(t * 6 for t in outcomes)])
    return np.geomspace(shortest, min(longest, _LONGEST_S * 24), _POINTS)


def _outcome(found: Outcome | None) -> dict[str, Any] | None:
    return None if found is None else _finite(asdict(found))


def _bound(bound: Bound, found: Advice) -> dict[str, Any]:
    decides = bound is found.lower or bound is found.upper
    return _finite(
        {
            "kind": bound.kind.value,
            "is_upper": bound.is_upper,
            "seconds": bound.seconds,
            "decides": decides and bound.seconds > 0,
        }
    )


def _finite(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields without infinities: JSON has none."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in fields.items()
    }


def _consistency(found: Consistency | None) -> dict[str, Any] | None:
    if found is None:
        return None
    labels = {
        "Exactly once": found.exactly_once,
        "Checkpoint completes": found.checkpoint,
        "Source returns to its position": found.source,
        "Sink commits": found.sink,
    }
    return {"parts": [{"label": label, **asdict(part)} for label, part in labels.items()]}
