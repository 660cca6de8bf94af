"""The settings of a session."""

from __future__ import annotations

import logging

import pytest
from py4j.java_gateway import GatewayClient
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


def test_ctrl_c_while_spark_starts_is_not_logged_with_a_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    interrupted = "KeyboardInterrupt while sending command."

    class Interrupted:
        """A connection to the JVM whose user presses Ctrl-C."""

        socket = None

        def send_command(self, command: str) -> str:
            raise KeyboardInterrupt

        def close(self, *_: object) -> None:
            pass

    monkeypatch.setattr(logging.getLogger(), "filters", [])
    session._quiet_py4j()
    session._quiet_py4j()
    client = GatewayClient()
    monkeypatch.setattr(client, "_get_connection", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.send_command("x")
    assert interrupted not in caplog.text
    monkeypatch.setattr(logging.getLogger(), "filters", [])
    with pytest.raises(KeyboardInterrupt):
        client.send_command("x")
    assert interrupted in caplog.text
