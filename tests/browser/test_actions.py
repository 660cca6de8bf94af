"""The buttons of a job ask first, act through the REST API, and show how it ended."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.watched_page import WatchedPages, address

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.browser


@pytest.fixture
def own(checkpoints: Path) -> Iterator[str]:
    """A running job that this test may end."""
    name = f"own-{time.time_ns()}"
    command = [sys.executable, "-m", "tests.browser.own_program", str(checkpoints), name]
    job = subprocess.Popen(command, cwd=ROOT)
    history = checkpoints / name / "history"
    deadline = time.monotonic() + 30
    while not list(history.glob("0*.json")):
        assert job.poll() is None
        assert time.monotonic() < deadline, "the job takes no checkpoints"
        time.sleep(0.05)
    yield name
    job.kill()
    job.wait()


def act(page: Page, button: str, confirm: str) -> None:
    page.get_by_role("group", name="Actions").get_by_role("button", name=button, exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name=confirm).click()


def test_nothing_happens_without_a_confirmation(pages: WatchedPages, own: str) -> None:
    page = pages.open(address(own))
    sent: list[str] = []
    page.on("request", lambda r: sent.append(r.url) if r.method != "GET" else None)
    actions = page.get_by_role("group", name="Actions")
    for name in ("Checkpoint", "Savepoint", "Stop with savepoint", "Cancel"):
        actions.get_by_role("button", name=name, exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name="Keep running").click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        actions.get_by_role("button", name=name, exact=True).click()
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
    assert sent == []


def test_a_checkpoint_and_a_savepoint_are_taken(
    pages: WatchedPages, own: str, tmp_path: Path
) -> None:
    page = pages.open(address(own, "checkpoints"))
    act(page, "Checkpoint", "Trigger checkpoint")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(re.compile(r"Checkpoint \d+ is complete"))
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("group", name="Actions").get_by_role(
        "button", name="Savepoint", exact=True
    ).click()
    dialog.get_by_label("Directory").fill(str(tmp_path))
    dialog.get_by_role("button", name="Write savepoint").click()
    expect(dialog).to_contain_text("The savepoint is complete")
    (written,) = tmp_path.iterdir()
    expect(dialog).to_contain_text(written.name)
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator(".strip a.savepoint")).to_have_count(1)


def test_a_request_that_fails_says_why(pages: WatchedPages, own: str) -> None:
    pages.expects_lost_connections = True  # the browser logs the status
    page = pages.open(address(own))
    act(page, "Savepoint", "Write savepoint")
    expect(page.get_by_role("dialog")).to_contain_text("That did not work")
    expect(page.get_by_role("dialog").locator("pre")).to_contain_text("director")


def test_a_job_is_stopped_with_a_savepoint(pages: WatchedPages, own: str, tmp_path: Path) -> None:
    page = pages.open(address(own))
    page.get_by_role("button", name="Stop with savepoint").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Directory").fill(str(tmp_path))
    dialog.get_by_role("button", name="Stop the job").click()
    expect(dialog).to_contain_text("The job was stopped")
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator(".job-header .badge")).to_have_text("STOPPED")
    for button in page.get_by_role("group", name="Actions").get_by_role("button").all():
        expect(button).to_be_disabled()


def test_a_job_is_canceled(pages: WatchedPages, own: str) -> None:
    page = pages.open(address(own))
    act(page, "Cancel", "Cancel the job")
    expect(page.get_by_role("dialog")).to_contain_text("being canceled")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(page.locator(".job-header .badge")).to_have_text("CANCELED")
