"""A server or a driver that is gone is reported, and what is shown is marked as old."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.dashboard_server import DashboardServer
from tests.browser.watched_page import WatchedPages, address

ROOT = Path(__file__).parents[2]
_WAIT_MS = 30_000

pytestmark = pytest.mark.browser


def test_a_server_that_is_gone_is_reported_until_it_is_back(
    pages: WatchedPages, server: DashboardServer, shop: str
) -> None:
    pages.expects_lost_connections = True
    page = pages.open(address(shop))
    expect(page.locator("[data-connection=ok]")).to_be_visible()
    expect(page.locator("h1")).to_have_text("shop orders")
    server.kill()
    expect(page.locator("[data-connection=lost]")).to_be_visible(timeout=_WAIT_MS)
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    expect(page.get_by_role("alert")).to_contain_text(re.compile(r"What is shown is .* old"))
    expect(page.locator("h1")).to_have_text("shop orders")
    server.start()
    expect(page.locator("[data-connection=ok]")).to_be_visible(timeout=_WAIT_MS)
    expect(page.get_by_role("alert")).to_have_count(0)


def test_figures_of_a_driver_that_is_stuck_or_dead_are_marked(
    pages: WatchedPages, checkpoints: Path
) -> None:
    name = f"stuck-{time.time_ns()}"
    command = [sys.executable, "-m", "tests.browser.own_program", str(checkpoints), name]
    driver = subprocess.Popen(command, cwd=ROOT)
    try:
        deadline = time.monotonic() + 60
        while not (checkpoints / name / "driver.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        page = pages.open(address(name))
        expect(page.locator(".uplot")).to_be_visible(timeout=_WAIT_MS)
        expect(page.locator(".figures-stale")).to_have_count(0)
        os.kill(driver.pid, signal.SIGSTOP)
        expect(page.get_by_text("Live figures are stale")).to_be_visible(timeout=_WAIT_MS)
        expect(page.locator(".node-stale").first).to_have_text("stale")
        driver.kill()
        driver.wait()
        expect(page.locator(".job-header .badge")).to_have_text("DIED", timeout=_WAIT_MS)
        expect(page.get_by_text("The driver does not answer")).to_be_visible()
        expect(page.get_by_text("Nothing is processed now")).to_be_visible()
        actions = page.get_by_role("group", name="Actions")
        expect(actions.get_by_role("button", name="Cancel")).to_be_disabled()
    finally:
        driver.kill()
        driver.wait()


def test_a_job_whose_directory_is_deleted_meanwhile_is_reported(
    pages: WatchedPages, checkpoints: Path
) -> None:
    pages.expects_lost_connections = True  # the browser logs the 404
    directory = checkpoints / "gone-job"
    (checkpoints / "finished-job").rename(directory)
    page = pages.open(address("gone-job"))
    expect(page.locator(".job-header .badge")).to_have_text("FINISHED")
    directory.rename(checkpoints / "finished-job")
    expect(page.get_by_text("The job's directory is gone")).to_be_visible(timeout=_WAIT_MS)
