"""The documentation matches the code.

``python -m tests.unit.test_docs`` prints the table of options.
"""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import errors
from penstock.checkpoint.event_log import CheckpointEvent
from penstock.checkpoint.settings import Guarantee
from penstock.cli.main import plans_of
from penstock.common.config.known_options import KNOWN_OPTIONS
from penstock.common.config_options import ConfigOption
from penstock.crash_points import CrashPoint
from penstock.graph.render import render_text

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def options_table() -> str:
    """Return the table of docs/configuration.md."""
    rows = ["| key | default | value | what it does |", "|---|---|---|---|"]
    for option in KNOWN_OPTIONS:
        keys = " (or ".join(f"`{key}`" for key in (option.key, *option.fallback_keys))
        closing = ")" * len(option.fallback_keys)
        rows.append(
            f"| {keys}{closing} | {default_text(option)} | {option.kind.expected} "
            f"| {option.description} |"
        )
    return "\n".join(rows)


def default_text(option: ConfigOption[Any]) -> str:
    value = option.default
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, timedelta):
        return f"`{round(value.total_seconds() * 1000)} ms`"
    if option.key.endswith("bytes"):
        return f"`{value >> 20} mb`"
    return f"`{value}`"


def test_every_option_is_documented_with_its_default() -> None:
    assert options_table() in (ROOT / "docs" / "configuration.md").read_text()


def test_the_first_program_is_one_that_the_tests_run() -> None:
    readme = (ROOT / "README.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert program == (ROOT / "examples" / "first_program.py").read_text()
    assert len(readme.splitlines()) < 120


def test_the_plan_shown_is_the_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.datastream.runtime_settings.cores", lambda: 2)
    (plan,) = plans_of(ROOT / "examples" / "word_count.py", ())
    assert render_text(plan) in (ROOT / "docs" / "concepts" / "index.md").read_text()


def test_every_error_is_explained() -> None:
    text = (ROOT / "docs" / "errors.md").read_text()
    names = [n for n in vars(errors) if n.endswith("Error") and not n.startswith("_")]
    assert [name for name in names if f"`{name}`" not in text] == []


def test_every_crash_point_is_in_the_architecture_and_no_other() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text().split("## Crash points")[1].split("\n## ")[0]
    named = {name for row in re.findall(r"^\| (`.*?) \|", text, re.M) for name in row.split(", ")}
    assert named == {f"`{point}`" for point in CrashPoint}


def test_packages_and_modules_that_the_architecture_names_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    source = ROOT / "src" / "penstock"
    packages = {path.name for path in source.iterdir() if path.is_dir()} - {"__pycache__"}
    assert [package for package in packages if f"`{package}`" not in text] == []
    modules = re.findall(r"`([a-z_/]+\.py)`", text)
    assert len(modules) > 60
    assert [module for module in modules if not (source / module).exists()] == []


def test_the_checkpoint_event_log_shown_has_only_real_events() -> None:
    text = (ROOT / "docs" / "concepts" / "checkpoints.md").read_text().split("what happened\n")[1]
    events = re.findall(r"^ +\+\d+ ms  .*?  +([a-z ]+?)(?::.*)?$", text.split("```")[0], re.M)
    assert len(events) == 15
    assert set(events) <= {event.label for event in CheckpointEvent}


def test_the_event_logs_of_aligned_and_unaligned_checkpoints_have_only_real_events() -> None:
    text = (ROOT / "docs" / "concepts" / "unaligned.md").read_text()
    logs = [part.split("```")[0] for part in text.split("what happened\n")[1:]]
    events = [re.findall(r"^ +\+\d+ ms  .*?  +([a-z -]+?)(?::.*)?$", log, re.M) for log in logs]
    assert [len(lines) for lines in events] == [19, 23]
    assert {event for lines in events for event in lines} <= {
        event.label for event in CheckpointEvent
    }


def test_the_guarantee_table_has_all_modes() -> None:
    text = (ROOT / "docs" / "concepts" / "checkpoints.md").read_text().split("## Guarantees")[1]
    assert [mode for mode in Guarantee if f"| `{mode.value}`" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_have_targets(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)", page.read_text())
    inside = [t for t in targets if not t.startswith("http")]
    assert [t for t in inside if not (page.parent / t).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_headings_have_targets(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]*)#([^)]*)\)", page.read_text())
    inside = [(page.parent / path if path else page, anchor) for path, anchor in links]
    assert [a for target, a in inside if target.is_file() and a not in anchors(target)] == []


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = (heading.replace("`", "") for heading in re.findall(r"^#+ (.*)$", text, re.M))
    return {re.sub(r"[^\w\- ]", "", h.strip().lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("name", ["kafka_to_postgres", "json_files"])
def test_the_program_in_a_guide_is_the_example(name: str) -> None:
    page = ROOT / "docs" / "guides" / f"{name.replace('_', '-')}.md"
    assert f"```python\n{(ROOT / 'examples' / f'{name}.py').read_text()}```" in page.read_text()


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / t).resolve() for t in re.findall(r"\]\(([^)#]+)", index.read_text())}
    pages = {page for page in PAGES if page.is_relative_to(index.parent)} - {index}
    assert pages - linked == set()


if __name__ == "__main__":
    print(options_table())
