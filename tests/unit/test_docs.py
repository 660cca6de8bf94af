"""The documentation says what the code does.

``python -m tests.unit.test_docs`` prints the table of options.
"""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import errors
from penstock.checkpoint.settings import Guarantee
from penstock.checkpoint.story import StoryEvent
from penstock.cli.main import plans_of
from penstock.common.config_options import ConfigOption
from penstock.common.known_options import KNOWN_OPTIONS
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
    assert program == (ROOT / "examples" / "word_count.py").read_text()


@pytest.mark.parametrize("page", ["README.md", "docs/concepts/index.md"])
def test_the_plan_shown_is_the_real_one(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.datastream.runtime_settings.cores", lambda: 2)
    (plan,) = plans_of(ROOT / "examples" / "word_count.py", ())
    assert render_text(plan) in (ROOT / page).read_text()


def test_every_error_is_explained() -> None:
    text = (ROOT / "docs" / "errors.md").read_text()
    names = [n for n in vars(errors) if n.endswith("Error") and not n.startswith("_")]
    assert [name for name in names if f"`{name}`" not in text] == []


def test_every_place_to_die_is_in_the_architecture_and_no_other() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text().split("## Places to die")[1].split("\n## ")[0]
    named = {name for row in re.findall(r"^\| (`.*?) \|", text, re.M) for name in row.split(", ")}
    assert named == {f"`{point}`" for point in CrashPoint}


def test_modules_and_rooms_the_architecture_names_are_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    package = ROOT / "src" / "penstock"
    rooms = {path.name for path in package.iterdir() if path.is_dir()} - {"__pycache__"}
    assert [room for room in rooms if f"`{room}`" not in text] == []
    named = re.findall(r"`(?:penstock\.)?([a-z_]+)\.([a-z_]+)(?:\.[a-z_]+)?`", text)
    points = {tuple(point.split(".")) for point in CrashPoint}
    modules = [package / m[0] / m[1] for m in named if m[0] in rooms and m not in points]
    assert len(modules) > 20
    assert [m for m in modules if not m.with_suffix(".py").exists()] == []


def test_the_story_of_a_checkpoint_is_told_in_words_that_exist() -> None:
    text = (ROOT / "docs" / "concepts" / "checkpoints.md").read_text().split("what happened\n")[1]
    told = re.findall(r"^ +\+\d+ ms  .*?  +([a-z ]+?)(?::.*)?$", text.split("```")[0], re.M)
    assert len(told) == 15
    assert set(told) <= set(StoryEvent)


def test_the_stories_beside_each_other_are_told_in_words_that_exist() -> None:
    text = (ROOT / "docs" / "concepts" / "unaligned.md").read_text()
    stories = [part.split("```")[0] for part in text.split("what happened\n")[1:]]
    told = [
        re.findall(r"^ +\+\d+ ms  .*?  +([a-z -]+?)(?::.*)?$", story, re.M) for story in stories
    ]
    assert [len(lines) for lines in told] == [19, 23]
    assert {word for lines in told for word in lines} <= set(StoryEvent)


def test_the_guarantee_table_has_all_modes() -> None:
    text = (ROOT / "docs" / "concepts" / "checkpoints.md").read_text().split("## Guarantees")[1]
    assert [mode for mode in Guarantee if f"| `{mode.value}`" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)", page.read_text())
    inside = [t for t in targets if not t.startswith("http")]
    assert [t for t in inside if not (page.parent / t).exists()] == []


if __name__ == "__main__":
    print(options_table())
