"""Describes a program and its settings for tools that look at its job from outside."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Iterator
from datetime import timedelta

from penstock import __version__
from penstock.checkpoint.storage.job_facts import JobFacts
from penstock.common.config.known_options import STORAGE_PREFIX
from penstock.common.config.option_kinds import DURATION, STRING
from penstock.common.config.pipeline_options import GLOBAL_JOB_PARAMETERS
from penstock.common.config_options import read
from penstock.common.configuration import Configuration
from penstock.common.text.durations import format_duration
from penstock.common.time import Duration
from penstock.recovery.supervisor import supervised_since
from penstock.redaction import redact_arguments, redact_value


def program_facts(name: str, configuration: Configuration, *, batch_mode: bool) -> JobFacts:
    """Return what this process runs, without credentials and without the plan."""
    # How stores are reached is never written down: see `storage_options`.
    settings = {k: v for k, v in _texts(configuration) if not k.startswith(STORAGE_PREFIX)}
    return JobFacts(
        name,
        time.time(),
        sys.argv[0] or None,
        redact_arguments(sys.argv[1:]),
        settings=redact_value(settings),
        mode="BATCH" if batch_mode else "STREAMING",
        supervised=supervised_since() is not None,
        versions={
            "penstock": __version__,
            "python": platform.python_version(),
            "architecture": platform.machine(),
        },
    )


def _texts(configuration: Configuration) -> Iterator[tuple[str, str]]:
    """Yield all settings as a configuration file could have them."""
    parameters = redact_value(read(configuration, GLOBAL_JOB_PARAMETERS))
    shown = Configuration(configuration)
    if parameters:
        shown.set(GLOBAL_JOB_PARAMETERS, parameters)
    for key in sorted(shown.key_set()):
        match shown.get(key):
            case list() | tuple() as items:
                yield key, ";".join(map(str, items))
            case dict() as pairs:
                yield key, ",".join(f"{name}:{item}" for name, item in pairs.items())
            case timedelta() | Duration() as value:
                yield key, format_duration(DURATION.parse(value))
            case value:
                yield key, STRING.parse(value)
