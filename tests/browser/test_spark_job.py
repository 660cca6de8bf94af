"""The dashboard while a job on a real Spark runs, is killed, and resumes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.dashboard_server import DashboardServer
from tests.browser.watched_page import WatchedPages, address

ROOT = Path(__file__).parents[2]
_WAIT_MS = 90_000

pytestmark = [pytest.mark.browser, pytest.mark.spark]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """The directory of a supervised job on Spark: `orders.py`, with more orders than are needed."""
    program = tmp_path / "many_orders.py"
    program.write_text(
        "import sys\n"
        "import orders\n"
        "orders.SHOPS = {'web': (560_000, 280), 'store': (240_000, 160)}\n"
        "orders.main(sys.argv[1])\n"
    )
    settings = {
        "penstock.work-dir": tmp_path / "work",
        "penstock.state.local-dir": tmp_path / "state",
        "spark.local.dir": tmp_path / "spark",
    }
    penstock = Path(sys.executable).with_name("penstock")
    command = [str(penstock), "run", "--supervise"]
    command += [part for key, value in settings.items() for part in ("-D", f"{key}={value}")]
    (tmp_path / "checkpoints").mkdir()
    with (tmp_path / "log").open("wb") as log:
        job = subprocess.Popen(
            [*command, str(program), str(tmp_path)],
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "examples")},
        )
    yield tmp_path
    job.terminate()
    try:
        job.wait(60)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def when(condition: Callable[[], object], log: Path, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.2)


def test_a_killed_driver_is_seen_and_its_recovery_explained(
    browser: Browser, directory: Path
) -> None:
    checkpoints, log = directory / "checkpoints", directory / "log"

    def completed() -> int:
        return len(list(checkpoints.glob("*/history/0*.json")))

    when(lambda: completed() >= 2, log)
    (job,) = (path.name for path in checkpoints.iterdir())
    driver = json.loads((checkpoints / job / "driver.json").read_text())
    with DashboardServer(checkpoints) as server:
        pages = WatchedPages(browser, server.url)
        page = pages.open(address(job))
        expect(page.locator(".job-header .badge")).to_have_text("RUNNING")
        expect(page.locator(".node-rates").first).to_contain_text(
            re.compile(r"in\s*[\d,.]+/s"), timeout=_WAIT_MS
        )
        page.get_by_role("link", name="Components").click()
        expect(page.get_by_role("region", name="Job manager")).to_contain_text(str(driver["pid"]))
        expect(page.locator(".executor").first).to_contain_text("Executor", timeout=_WAIT_MS)
        expect(page.locator(".executor .chip").first).to_be_visible()

        os.kill(driver["pid"], signal.SIGKILL)
        status = page.locator(".job-header .badge")
        expect(status).to_have_text(re.compile("DIED|INITIALIZING"), timeout=_WAIT_MS)
        expect(status).to_have_text("RUNNING", timeout=_WAIT_MS)
        page.get_by_role("link", name="Overview").click()
        expect(page.get_by_text("Last restart:")).to_be_visible(timeout=_WAIT_MS)
        page.get_by_role("link", name="Attempts and exceptions").click()
        attempts = page.locator(".attempt")
        expect(attempts).to_have_count(2)
        expect(attempts.first.locator(".times li")).to_have_count(5)
        expect(attempts.first.get_by_role("link", name="checkpoint")).to_be_visible()
        before = completed()
        when(lambda: completed() > before, log)
        page.get_by_role("link", name="Checkpoints").click()
        expect(page.locator(".gantt-row").first).to_be_visible()
        expect(page.locator("table.history tbody tr").first).to_contain_text("a2")
        pages.close()
