"""The parts of a running server that its calls use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.common.storage_url import Location
from penstock.serve.events import EventHub
from penstock.serve.http.tokens import Tokens
from penstock.serve.jobs.catalog import JobCatalog
from penstock.serve.jobs.disposals import Disposals
from penstock.serve.jobs.live import LiveWatch
from penstock.serve.queryable.lookups import StateLookups
from penstock.serve.submission.settings import SubmissionSettings
from penstock.serve.submission.submissions import Submissions


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of a server."""

    directory: Location
    """The checkpoint directory."""
    heartbeat_timeout_s: float = 50.0
    host: str = "localhost"
    port: int = 8081
    savepoint_directory: Location | None = None
    """Where savepoints of jobs go that have no directory of their own."""
    allowed_hosts: tuple[str, ...] = ()
    """Other names under which the server is reached."""
    tokens: Tokens | None = None
    """Who may do what; None lets everybody do everything."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """How stores are reached."""
    submission: SubmissionSettings | None = None
    """How programs are run, None if the server runs none."""


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The parts of one server."""

    settings: ServerSettings
    jobs: JobCatalog
    live: LiveWatch
    events: EventHub
    lookups: StateLookups
    disposals: Disposals = field(default_factory=Disposals)
    submissions: Submissions | None = None
    """The programs and the jobs that were submitted here, None if the server runs none."""
