"""Every connector page begins with code and its guarantee, and both indexes link to it."""

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
PAGES = sorted((DOCS / "connectors").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_code_and_then_states_its_guarantee(page: Path) -> None:
    title, code, rest = page.read_text().split("\n\n", 2)
    assert title.startswith("# ")
    assert code.startswith("```python\n")
    guarantee = rest if code.endswith("```") else rest.partition("\n```\n\n")[2]
    assert guarantee.startswith("**")
    assert "once" in guarantee.partition("**")[2].partition("**")[0]


@pytest.mark.parametrize("index", ["index.md", "connectors/index.md"])
def test_every_page_can_be_found(index: str) -> None:
    text = (DOCS / index).read_text()
    assert [p.name for p in PAGES if p.name != "index.md" and f"{p.name})" not in text] == []
