"""Every page shows what the job directories have, on wide screens and on phones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.watched_page import PAGES, WatchedPages, address

pytestmark = pytest.mark.browser
HEADINGS: dict[str, str | re.Pattern[str]] = {
    "overview": "What stands out",
    "components": "Task managers",
    "checkpoints": "Newest checkpoints",
    "attempts": "Attempts",
    "state": "totals per customer",
    "advice": "Goals",
}


def heading(page: Page, name: str | re.Pattern[str]) -> Locator:
    exact = isinstance(name, str)
    return page.get_by_role("heading", name=name, exact=exact).first


def test_the_list_shows_all_jobs_and_those_that_need_attention_first(
    page: Page, shop: str, checkpoints: Path
) -> None:
    rows = page.locator(".jobs-table tbody tr")
    expect(rows).to_have_count(len(list(checkpoints.iterdir())))
    statuses = [row.locator(".badge").inner_text() for row in rows.all()]
    assert statuses[0] == "FAILED"
    assert statuses.index("DIED") < statuses.index("RUNNING") < statuses.index("FINISHED")
    page.get_by_role("button", name="Ended").click()
    expect(page.locator(".jobs-table .badge.bad")).to_have_count(0)
    expect(page.get_by_text("STOPPED").first).to_be_visible()
    page.get_by_role("button", name="All", exact=False).first.click()
    page.get_by_label("Find by name or id").fill("shop")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("RUNNING")


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_a_page_is_shown_accessible_and_fits(
    pages: WatchedPages, shop: str, axe: str, name: str, look: str
) -> None:
    page = pages.open(address(shop, name), phone=look == "phone", dark=look == "dark")
    expect(heading(page, HEADINGS[name])).to_be_visible()
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    page.wait_for_timeout(400)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious_findings(page, axe) == []


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_the_list_of_jobs_is_accessible(
    pages: WatchedPages, shop: str, axe: str, look: str
) -> None:
    page = pages.open(phone=look == "phone", dark=look == "dark")
    expect(page.get_by_role("link", name="shop orders")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious_findings(page, axe) == []


def serious_findings(page: Page, axe: str) -> list[str]:
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']}: {node['html'][:200]} {node['failureSummary']}"
        for violation in found["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


def test_the_overview_names_the_restart_and_the_bottleneck(pages: WatchedPages, shop: str) -> None:
    page = pages.open(address(shop))
    expect(page.get_by_text("owes").first).to_contain_text("ValueError")
    expect(page.get_by_text("Bottleneck: totals per customer → files")).to_be_visible()
    nodes = page.locator(".node")
    expect(nodes).to_have_count(3)
    expect(page.locator(".edge-label").first).to_contain_text("queued")
    expect(page.locator(".node-rates").first).to_contain_text(re.compile(r"in\s*[\d,.]+/s"))
    nodes.filter(has_text="totals per customer").click()
    table = page.get_by_role("region", name="Subtasks")
    expect(table.locator("tbody tr")).to_have_count(4)
    expect(table.locator("tbody tr").first).to_contain_text("%")
    expect(page.locator(".uplot")).to_be_visible()


def test_the_chart_of_a_checkpoint_has_a_row_per_subtask_with_its_times(
    pages: WatchedPages, shop: str, checkpoints: Path
) -> None:
    page = pages.open(address(shop, "checkpoints"))
    completed = page.locator(".strip a.completed").first
    completed.click()
    expect(page).to_have_url(re.compile(r"/checkpoints/\d+$"))
    number = int(page.url.rsplit("/", 1)[1])
    path = checkpoints / shop / "history" / f"{number:012d}.json"
    stored = json.loads(path.read_text())
    subtasks = sum(len(operator["stats"]) for operator in stored["operators"])
    expect(page.locator(".gantt-row:not(.driver)")).to_have_count(subtasks)
    expect(page.locator("#checkpoint-detail")).to_contain_text(f"Checkpoint {number}")
    expect(page.locator(".reason")).to_contain_text("of its slowest subtask")
    page.get_by_role("button", name="Event log").click()
    rows = page.locator("table.events tbody tr")
    expect(rows).to_have_count(len(stored["story"]))
    expect(rows.last).to_contain_text("completed")
    page.get_by_role("button", name="Table").click()
    names = page.get_by_role("region", name="Subtasks of the checkpoint")
    expect(names).to_contain_text("totals per customer")
    page.get_by_role("link", name="Follow the newest").click()
    expect(page.locator(".strip a[aria-current]")).to_have_count(1)


def test_attempts_show_cause_times_and_the_users_traceback(
    pages: WatchedPages, shop: str, checkpoints: Path
) -> None:
    stored = (checkpoints / shop / "history" / "recoveries.jsonl").read_text().splitlines()
    page = pages.open(address(shop, "attempts"))
    expect(page.locator(".attempt")).to_have_count(1 + len(stored))
    newest = page.locator(".attempt").first
    expect(newest).to_contain_text("failed on record")
    expect(newest.locator(".times li")).to_have_count(5)
    expect(newest.locator(".bar span").first).to_be_visible()
    expect(page.locator(".cause").first).to_have_text(re.compile(r"^ValueError: customer \d+ owes"))
    expect(page.locator("pre.trace").first).to_contain_text("raise ValueError(message)")


def test_the_state_page_shows_states_and_key_groups(pages: WatchedPages, shop: str) -> None:
    page = pages.open(address(shop, "state"))
    rows = page.get_by_role("region", name="States of totals per customer").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("LIST(LONG)")
    expect(rows.nth(1)).to_contain_text("total")
    expect(page.locator(".heat span")).to_have_count(128)
    expect(page.get_by_text("Operators without keyed state")).to_be_visible()


def test_a_key_is_looked_up_and_keys_are_browsed(pages: WatchedPages, shop: str, axe: str) -> None:
    page = pages.open(address(shop, "state"))
    lookup = page.locator("form.lookup").first
    lookup.get_by_label("Key").fill("7")
    lookup.get_by_role("button", name="Look up").click()
    rows = page.get_by_role("region", name="Entries of total").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.first.locator("td").first).to_have_text("7")
    expect(rows.first.locator("td").last).to_have_text(re.compile(r"^\d+$"))
    expect(page.locator("[data-lookup]")).to_contain_text(re.compile(r"1 entry in checkpoint \d+"))
    lookup.get_by_label("Key").fill("999999")
    page.keyboard.press("Enter")
    expect(page.get_by_text("There is no such key")).to_be_visible()
    pages.expects_lost_connections = True  # the browser logs the 400
    lookup.get_by_label("Key").fill("seven")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").filter(has_text="no key of type")).to_be_visible()
    lookup.get_by_label("Key").fill("")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(20)
    page.get_by_role("button", name="Show more").click()
    expect(rows).to_have_count(40)
    keys = [row.locator("td").first.inner_text() for row in rows.all()]
    assert len(set(keys)) == 40
    assert serious_findings(page, axe) == []
    lookup.get_by_label("State").select_option(
        label="totals per customer · recent orders (not queryable)"
    )
    expect(page.get_by_text("cannot be looked up")).to_be_visible()
    expect(page.get_by_text("penstock.queryable-state.enabled")).to_be_visible()
    expect(lookup.get_by_role("button", name="Look up")).to_be_disabled()


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_two_checkpoints_are_compared(pages: WatchedPages, shop: str, axe: str, look: str) -> None:
    page = pages.open(address(shop, "state"), phone=look == "phone", dark=look == "dark")
    compare = page.get_by_role("button", name="Compare")
    expect(compare).to_be_visible()
    for _ in range(5):
        # The older one may have been subsumed since the list was read.
        compare.click()
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        if page.get_by_text("cannot be compared").count() == 0:
            break
        page.reload()
    changed = page.get_by_role("region", name="Changed states").locator("tbody tr")
    expect(changed.filter(has_text="recent orders")).to_be_visible()
    expect(page.get_by_role("region", name="Changes of total")).to_be_visible()
    expect(page.get_by_text("Keys are not shown of recent orders: not queryable.")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious_findings(page, axe) == []


def test_components_name_every_process_and_where_it_is(
    pages: WatchedPages, shop: str, checkpoints: Path
) -> None:
    lease = json.loads((checkpoints / shop / "driver.json").read_text())
    page = pages.open(address(shop, "components"))
    expect(page.get_by_role("region", name="Job manager")).to_contain_text(str(lease["pid"]))
    expect(page.get_by_role("region", name="Dispatcher")).to_contain_text("can be restarted")
    expect(page.get_by_role("region", name="Subtasks").locator(".chip")).to_have_count(12)


@pytest.mark.parametrize("job", ["failed-job", "finished-job", "in-flight-job", "rocksdb-job"])
def test_all_pages_of_a_job_of_an_older_version_are_shown(pages: WatchedPages, job: str) -> None:
    page = pages.open(address(job))
    for tab in page.locator(".tabs a").all():
        tab.click()
        expect(tab).to_have_attribute("aria-current", "page")
        expect(page.locator("main .card, main .stats").first).to_be_visible()
        expect(page.locator("[aria-busy=true]")).to_have_count(0)


def test_a_job_that_does_not_exist_is_reported(pages: WatchedPages) -> None:
    pages.expects_lost_connections = True  # the browser logs the 404
    page = pages.open(address("no-such-job"))
    expect(page.get_by_role("alert")).to_contain_text("There is no job here")


def test_the_theme_can_be_switched_and_stays(pages: WatchedPages) -> None:
    page = pages.open(dark=False)
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.get_by_role("button", name="Switch to dark colors").click()
    dark = page.evaluate(background)
    assert dark != light
    page.reload()
    expect(page.get_by_role("button", name="Switch to light colors")).to_be_visible()
    assert page.evaluate(background) == dark


def test_all_can_be_reached_with_the_keyboard(pages: WatchedPages, shop: str) -> None:
    page = pages.open()
    expect(page.get_by_role("link", name="shop orders")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "shop orders":
            break
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("shop orders")
    expect(page.locator("h1")).to_be_focused()
