"""The settings of a session."""

from __future__ import annotations

import pytest
from pyspark import SparkContext

from penstock.errors import ConfigurationError
from penstock.spark import session


@pytest.mark.parametrize("who", ["the program", "spark-submit"])
def test_settings_that_break_exactly_once_are_refused_from_any_origin(
    monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    broken = {"spark.speculation": "true"}
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(session, "check_java", lambda: None)
    monkeypatch.setattr(session, "_submitted", lambda: broken if who == "spark-submit" else {})
    with pytest.raises(ConfigurationError, match=r"spark\.speculation must be 'false'"):
        session.open_session(broken if who == "the program" else {})
