"""Takes the screenshots of docs/dashboard.md: `python -m tests.browser.screenshots`.

A job on a real Spark (or none: `--without-spark`) runs meanwhile. It fails once, its driver is
killed once, and it runs for as long as the models need to have something to say (`--seconds`).
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.conftest import ARGUMENTS, GOLDEN, ROOT, chromium
from tests.browser.dashboard_server import DashboardServer
from tests.browser.watched_page import PAGES, WatchedPages, address

IMAGES = ROOT / "docs" / "images"
HEIGHTS = {"checkpoints": 1500, "advice": 1500, "overview": 1180}
_QUALITY = 82
_HIDE_PATHS = """paths => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    for (const [path, shown] of paths) {
      texts.currentNode.data = texts.currentNode.data.replaceAll(path, shown);
    }
  }
}"""
"""Readers do not care where the screenshots were taken."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--without-spark", action="store_true")
    parser.add_argument("--only", nargs="*", help="the names of some pictures, such as `state`")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-screenshots-") as directory:
        checkpoints = Path(directory) / "checkpoints"
        checkpoints.mkdir()
        for name in ("failed", "finished", "canceled", "savepoint", "rocksdb"):
            (found,) = (GOLDEN / "v1" / name / "checkpoints").iterdir()
            shutil.copytree(found, checkpoints / f"{name}-job")
        job = start_job(checkpoints, "" if arguments.without_spark else "spark")
        try:
            take_all(checkpoints, "shop-orders", arguments.seconds, arguments.only)
        finally:
            job.terminate()
            job.wait()


def start_job(checkpoints: Path, where: str) -> subprocess.Popen[bytes]:
    penstock = Path(sys.executable).with_name("penstock")
    program = ROOT / "tests" / "browser" / "shop_program.py"
    parts = [penstock, "run", "--supervise", "-D", f"penstock.work-dir={checkpoints.parent}/work"]
    parts += [program, checkpoints, checkpoints.parent / "output", "3000", where]
    with (checkpoints.parent / "log").open("wb") as log:
        return subprocess.Popen([str(p) for p in parts], stdout=log, stderr=log)


def take_all(checkpoints: Path, job: str, seconds: float, only: list[str] | None) -> None:
    await_attempt(checkpoints / job, "a2")
    time.sleep(seconds / 3)
    os.kill(driver(checkpoints / job)["pid"], signal.SIGKILL)
    await_attempt(checkpoints / job, "a3")
    time.sleep(seconds * 2 / 3)
    with (
        sync_playwright() as playwright,
        DashboardServer(checkpoints) as server,
    ):
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        pictures: list[tuple[str, str, dict[str, bool]]] = [("jobs", "#/", {})]
        pictures += [(name, address(job, name), {}) for name in PAGES]
        pictures.append(("overview-dark", address(job), {"dark": True}))
        pictures.append(("phone", address(job), {"dark": True, "phone": True}))
        for name, path, look in pictures:
            if only is None or name in only:
                take(browser, server.url, checkpoints, name, path, **look)
        browser.close()


def await_attempt(job: Path, attempt: str) -> None:
    deadline = time.monotonic() + 180
    while True:
        history = sorted((job / "history").glob("0*.json"))
        if history and json.loads(history[-1].read_text())["attempt"] >= attempt:
            return
        if time.monotonic() > deadline:
            sys.exit((job.parents[1] / "log").read_text()[-4000:])
        time.sleep(0.5)


def driver(job: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((job / "driver.json").read_text())
    return found


def take(
    browser: Browser,
    url: str,
    checkpoints: Path,
    name: str,
    path: str,
    *,
    dark: bool = False,
    phone: bool = False,
) -> None:
    pages = WatchedPages(browser, url)
    page = pages.open(path, dark=dark, phone=phone, device_scale_factor=1.5)
    expect(page.locator("main .card").first).to_be_visible()
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    if name == "state":
        page.locator("form.lookup input[name=text]").fill("7")
        page.get_by_role("button", name="Look up").click()
        page.get_by_role("button", name="Compare").click()
        expect(page.locator("[data-lookup], [data-changes]")).to_have_count(2)
    # Live figures arrive, charts get points.
    page.wait_for_timeout(15_000 if name.startswith(("overview", "phone")) else 3_000)
    width, height = (390, 1240) if phone else (1280, HEIGHTS.get(name.split("-")[0], 2_000))
    full = page.evaluate("document.documentElement.scrollHeight")
    hidden = [[str(checkpoints.parent), "/data"], [str(ROOT), "/opt/penstock"]]
    page.evaluate(_HIDE_PATHS, hidden)
    session = page.context.new_cdp_session(page)
    shot = session.send(
        "Page.captureScreenshot",
        {
            "format": "webp",
            "quality": _QUALITY,
            "captureBeyondViewport": True,
            "clip": {"x": 0, "y": 0, "width": width, "height": min(height, full), "scale": 1},
        },
    )
    place = IMAGES / f"dashboard-{name}.webp"
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(base64.b64decode(shot["data"]))
    print(f"{place.relative_to(ROOT)}: {place.stat().st_size / 1024:.0f} KB")
    pages.close()


if __name__ == "__main__":
    main()
