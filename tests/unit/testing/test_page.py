"""The code in docs/testing.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import penstock.testing

PAGE = (Path(__file__).parents[3] / "docs" / "testing.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("snippet", range(len(SNIPPETS)))
def test_a_snippet_does_what_it_says(snippet: int) -> None:
    exec(compile(SNIPPETS[snippet], f"testing.md:{snippet}", "exec"), {"__name__": "snippet"})


def test_everything_public_is_on_the_page() -> None:
    assert [name for name in penstock.testing.__all__ if name not in PAGE] == []
