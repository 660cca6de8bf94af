"""The settings of a session."""

from __future__ import annotations

import pytest
from pyspark import SparkContext

from penstock.errors import ConfigurationError, PortInUseError
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


@pytest.mark.parametrize(
    ("service", "key"),
    [
        ("sparkDriver", "spark.driver.port"),
        ("org.apache.spark.network.netty.NettyBlockTransferService", "spark.blockManager.port"),
    ],
)
def test_a_port_in_use_is_one_sentence_with_its_key(service: str, key: str) -> None:
    text = (
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": java.net.BindException: bind(..) failed with error(-98): Address already in use: "
        f"Service '{service}' failed after 0 retries (starting from 52317)! Consider …"
    )
    assert session.port_in_use(text) == PortInUseError(key, 52317)
    assert f"port 52317 of this host is in use: set {key} to" in str(session.port_in_use(text))


def test_another_error_of_spark_is_no_port_in_use() -> None:
    text = "java.net.BindException: Cannot assign requested address: Service 'sparkDriver' failed"
    assert session.port_in_use(text) is None
