"""Every page about connectors begins with a guarantee, and the table leads to each of them."""

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
PAGES = sorted((DOCS / "connectors").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_its_guarantee_first(page: Path) -> None:
    title, first, *_ = page.read_text().split("\n\n")
    assert title.startswith("# ")
    assert first.startswith("**")
    assert "once" in first.partition("**")[2].partition("**")[0]


@pytest.mark.parametrize("index", ["index.md", "connectors/index.md"])
def test_every_page_can_be_found(index: str) -> None:
    text = (DOCS / index).read_text()
    assert [p.name for p in PAGES if p.name != "index.md" and f"{p.name})" not in text] == []
