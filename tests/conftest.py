"""What all tiers share."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the quick tests first: a broken unit should not wait for a JVM."""
    tier = {"crash": 2, "spark": 1}
    items.sort(key=lambda item: max((tier.get(m.name, 0) for m in item.iter_markers()), default=0))
