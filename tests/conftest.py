"""What all tiers share."""

from __future__ import annotations

import pytest
from hypothesis import settings

# Enough to find what is there to find, few enough for tests that take seconds.
settings.register_profile("quick", max_examples=15, deadline=None)
settings.load_profile("quick")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the quick tests first: a broken unit should not wait for a JVM."""
    tier = {"crash": 2, "spark": 1}
    items.sort(key=lambda item: max((tier.get(m.name, 0) for m in item.iter_markers()), default=0))
