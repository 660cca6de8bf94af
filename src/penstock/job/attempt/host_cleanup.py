"""Observes where hosts keep local state, and removes that of a finished job."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Mapping

from penstock.graph.plan import Plan
from penstock.job import state_jobs
from penstock.job.reports import MicroBatchReport, ReportListener
from penstock.job.submitter import Submitter
from penstock.task.layout import AttemptLayout

logger = logging.getLogger("penstock.job")

_TIMEOUT_S = 5.0


class HostCleanup:
    """Runs a last Spark job that removes the attempt's local directories from hosts; best effort.

    After a failed attempt, or a killed driver, the tasks of the next attempt do this instead, so
    that a restart does not wait for it.
    """

    def __init__(
        self, plan: Plan, layout: AttemptLayout, submitter: Submitter, *, is_restored: bool
    ) -> None:
        self._stages = [
            s for s in plan.stages if s.head.kind.is_keyed or layout.unshared is not None
        ]
        self._layout = layout
        self._submitter = submitter
        # Where tasks loaded restored state is not reported.
        self._may_be_elsewhere = is_restored
        self._directories: dict[str, set[str]] = {}
        """By host, where it has kept local state; region loops add to it, under the lock."""
        self._lock = threading.Lock()

    def seeing(self, report: ReportListener) -> ReportListener:
        """Wrap a report listener so that it also notes on which hosts subtasks ran."""
        mine = socket.gethostname(), str(self._layout.local.resolve())

        def listen(seen: MicroBatchReport, counters: Mapping[str, Mapping[str, int]]) -> None:
            for location in (location for location in seen.locations if location is not None):
                self._note(location.host, location.directory)
                if (location.host, location.directory) != mine:
                    self._may_be_elsewhere = True
            report(seen, counters)

        return listen

    def _note(self, host: str, directory: str) -> None:
        """Log it when a host uses another directory: the error itself is in an executor's log."""
        with self._lock:
            used = self._directories.setdefault(host, set())
            before = sorted(used)
            if directory in used:
                return
            used.add(directory)
        if before:
            logger.warning(
                "Host %s keeps local state in %s now. If %s is full, free space there, or set "
                "penstock.state.local-dir to a larger disk",
                host,
                directory,
                ", ".join(before),
            )

    def run(self, *, is_over: bool) -> None:
        """Clean up; called when no task of the attempt is running, before the engine closes.

        `is_over` says that no other attempt follows. An engine that has lost its hosts would never
        answer, so the wait is bounded.
        """
        if is_over and self._may_be_elsewhere:
            thread = threading.Thread(target=self._clean_up, name="host-cleanup", daemon=True)
            thread.start()
            thread.join(_TIMEOUT_S)

    def _clean_up(self) -> None:
        for stage in self._stages:
            work = [self._layout.attempt_dirs] * stage.parallelism
            try:
                self._submitter.run_per_subtask(
                    stage.id, "leave", state_jobs.remove_local_state, work
                )
            except Exception as error:
                logger.debug("local state on hosts was not removed: %s", error)
                return
