"""The end of an attempt on hosts that are not the driver's."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Mapping

from penstock.graph.plan import Plan
from penstock.job import state_jobs
from penstock.job.report import MicroBatchReport
from penstock.job.submitter import Submitter
from penstock.task.layout import Layout

__all__ = ["HostCleanup", "TakeReport"]

logger = logging.getLogger("penstock.job")

_LONGEST_S = 5.0

TakeReport = Callable[[MicroBatchReport, Mapping[str, Mapping[str, int]]], None]


class HostCleanup:
    """Lets tasks remove what an attempt kept on their hosts, as far as they get there.

    What an attempt leaves that failed, or was killed with its driver, is removed by the tasks of
    the next one: it shall not wait for that.
    """

    def __init__(
        self, plan: Plan, layout: Layout, submitter: Submitter, *, is_restored: bool
    ) -> None:
        self._stages = [s for s in plan.stages if s.head.kind.is_keyed]
        self._layout = layout
        self._submitter = submitter
        # Nobody tells where restored state was loaded.
        self._may_be_elsewhere = is_restored

    def seeing(self, report: TakeReport) -> TakeReport:
        """Return a taker of reports that looks, on their way, at where subtasks ran."""
        mine = socket.gethostname(), str(self._layout.local.here())

        def take(told: MicroBatchReport, counters: Mapping[str, Mapping[str, int]]) -> None:
            homes = [home for home in told.homes if home is not None]
            if any((home.host, home.directory) != mine for home in homes):
                self._may_be_elsewhere = True
            report(told, counters)

        return take

    def run(self, *, is_over: bool) -> None:
        """Clean up; called when no task of the attempt runs any more, before the engine closes.

        `is_over` says that no other attempt is to follow. An engine that has lost its hosts would
        never come back: it is not waited for long.
        """
        if is_over and self._may_be_elsewhere:
            thread = threading.Thread(target=self._clean_up, name="host-cleanup", daemon=True)
            thread.start()
            thread.join(_LONGEST_S)

    def _clean_up(self) -> None:
        for stage in self._stages:
            work = [self._layout.on_hosts] * stage.parallelism
            try:
                self._submitter.each(stage.id, "leave", state_jobs.leave, work)
            except Exception as error:
                logger.debug("hosts are not cleaned up: %s", error)
                return
