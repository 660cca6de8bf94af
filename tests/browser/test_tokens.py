"""A server with tokens: the form that asks for one, and what readers and operators see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from penstock import __version__
from tests.browser.dashboard_server import DashboardServer
from tests.browser.watched_page import WatchedPages, address
from tests.unit.serve.test_guard import OPERATOR, READER, tokens_file

pytestmark = pytest.mark.browser

ACTIONS = ("Checkpoint", "Savepoint", "Stop with savepoint", "Cancel")
NOTE = "Your token is a reader's"


@pytest.fixture(scope="module")
def guarded(
    checkpoints: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DashboardServer]:
    tokens = tokens_file(tmp_path_factory.mktemp("tokens"))
    with DashboardServer(checkpoints, "--tokens", str(tokens)) as server:
        yield server


@pytest.fixture
def tokened(browser: Browser, guarded: DashboardServer) -> Iterator[WatchedPages]:
    watched = WatchedPages(browser, guarded.url)
    watched.expects_lost_connections = True  # the browser logs the 401
    yield watched
    watched.close()


def give(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Continue").click()


def expect_buttons(page: Page, *, enabled: bool) -> None:
    actions = page.get_by_role("group", name="Actions")
    for name in ACTIONS:
        expect(actions.get_by_role("button", name=name, exact=True)).to_be_enabled(enabled=enabled)


def test_a_token_is_asked_for_until_one_is_right_and_kept_in_the_tab(
    tokened: WatchedPages, shop: str, axe: str
) -> None:
    page = tokened.open(address(shop))
    expect(page.get_by_role("heading")).to_have_text("This server asks for a token")
    page.evaluate(axe)
    found = page.evaluate("axe.run().then((result) => result.violations.map((v) => v.id))")
    assert found == []
    give(page, "x" * 20)
    expect(page.get_by_role("heading")).to_have_text("This server asks for a token")
    give(page, READER)
    expect(page.locator("h1")).to_have_text("shop orders")
    page.reload()
    expect(page.locator("h1")).to_have_text("shop orders")
    expect(page.locator("footer")).to_contain_text(f"penstock {__version__}")
    # A link would send no token.
    expect(page.get_by_role("link", name="Prometheus metrics")).to_have_count(0)


def test_a_reader_looks_at_a_job_and_is_told_why_it_cannot_control_it(
    tokened: WatchedPages, shop: str
) -> None:
    page = tokened.open(address(shop))
    give(page, READER)
    expect(page.get_by_text(NOTE)).to_be_visible()
    expect_buttons(page, enabled=False)
    for name, title in (("checkpoints", "Checkpoints"), ("attempts", "Attempts")):
        page.goto(tokened.url + address(shop, name))
        expect(page.get_by_role("heading", name=title).first).to_be_visible()


def test_an_operator_has_the_buttons(tokened: WatchedPages, shop: str) -> None:
    page = tokened.open(address(shop))
    give(page, OPERATOR)
    expect(page.locator("h1")).to_have_text("shop orders")
    expect_buttons(page, enabled=True)
    expect(page.get_by_text(NOTE)).to_have_count(0)


def test_without_tokens_the_footer_has_version_and_metrics(pages: WatchedPages, shop: str) -> None:
    page = pages.open(address(shop))
    expect(page.locator("footer")).to_contain_text(f"penstock {__version__}")
    expect(page.get_by_role("link", name="Prometheus metrics")).to_have_attribute("href", "metrics")
    assert page.request.get(f"{pages.url}metrics").ok
