"""A browser, a server over job directories, and a job that runs meanwhile."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from penstock.errors import MissingServerError
from penstock.testing.servers.cache import servers_directory
from tests.browser.dashboard_server import DashboardServer
from tests.browser.watched_page import WatchedPages
from tests.conftest import made_or_skipped

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parents[1] / "golden" / "jobs"
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str:
    found = shutil.which("chromium")
    if found is None:
        server, remedy = "chromium", "run `make setup-browser`"
        raise MissingServerError(server, "chromium on PATH", remedy)
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = made_or_skipped(chromium)
    with sync_playwright() as playwright:
        # Every launch has a new user-data-dir.
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


def axe_file() -> Path:
    found = sorted(servers_directory().glob("axe-core-*/axe.min.js"))
    if not found:
        server, remedy = "axe-core", "run `make setup-browser`"
        raise MissingServerError(server, f"axe.min.js in {servers_directory()}", remedy)
    return found[-1]


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which finds what is not accessible."""
    return made_or_skipped(axe_file).read_text()


@pytest.fixture(scope="session")
def checkpoints() -> Iterator[Path]:
    """A checkpoint directory with ended and dead jobs of golden directories."""
    with tempfile.TemporaryDirectory(prefix="penstock-browser-") as directory:
        root = Path(directory) / "checkpoints"
        root.mkdir()
        for name in ("failed", "finished", "canceled", "savepoint", "in-flight", "rocksdb"):
            (found,) = (GOLDEN / "v1" / name / "checkpoints").iterdir()
            shutil.copytree(found, root / f"{name}-job")
        yield root


@pytest.fixture(scope="session")
def shop(checkpoints: Path) -> Iterator[str]:
    """A running job with two sources that has failed once."""
    output = checkpoints.parent / "output"
    command = [sys.executable, "-m", "tests.browser.shop_program", checkpoints, output, "3000"]
    with (checkpoints.parent / "shop.log").open("wb") as log:
        job = subprocess.Popen([str(part) for part in command], cwd=ROOT, stdout=log, stderr=log)
    try:
        history = checkpoints / "shop-orders" / "history"
        deadline = time.monotonic() + 60
        while not (
            (history / "recoveries.jsonl").exists() and len(list(history.glob("0*.json"))) > 3
        ):
            assert job.poll() is None, (checkpoints.parent / "shop.log").read_text()
            assert time.monotonic() < deadline, "the job has not recovered"
            time.sleep(0.1)
        yield "shop-orders"
    finally:
        job.kill()
        job.wait()


@pytest.fixture(scope="session")
def server(checkpoints: Path) -> Iterator[DashboardServer]:
    with DashboardServer(checkpoints) as server:
        yield server


@pytest.fixture
def pages(browser: Browser, server: DashboardServer) -> Iterator[WatchedPages]:
    """Opens pages; at the end none of them may have had an error or asked another server."""
    server.start()
    watched = WatchedPages(browser, server.url)
    yield watched
    watched.close()


@pytest.fixture
def page(pages: WatchedPages) -> Page:
    return pages.open()
