"""Credentials in texts, arguments, values and log lines are hidden."""

import ast
import logging
import time
from pathlib import Path

import pytest

import penstock
from penstock.redaction import (
    RedactingFilter,
    is_sensitive,
    redact,
    redact_arguments,
    redact_value,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:s3cret@db/shop", "postgresql://me:***@db/shop"),
        ("nats://me:p@ss:w@host:4222, x", "nats://me:***@host:4222, x"),
        ("host=db password=s3cret dbname=shop", "host=db password=*** dbname=shop"),
        ("host=db password='s3 cret' dbname=shop", "host=db password='***' dbname=shop"),
        ('Login username="me" password="a\\"b";', 'Login username="me" password="***";'),
        ("{'sasl.password': 's3cret', 'n': 'g'}", "{'sasl.password': '***', 'n': 'g'}"),
        ('{"token": "s3cret", "n": 1}', '{"token": "***", "n": 1}'),
        ("-Dspark.hadoop.fs.s3a.secret.key=abc", "-Dspark.hadoop.fs.s3a.secret.key=***"),
        ("https://x.y/z?token=abc&n=1", "https://x.y/z?token=***&n=1"),
        ("Authorization: Bearer abcdefgh123", "Authorization: Bearer ***"),
        ("connect(password=self._password)", "connect(password=***)"),
    ],
)  # fmt: skip
def test_a_credential_in_a_text_is_hidden(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "unexpected token: ')' at 7",
        "postgresql://me@db:5432/shop",
        "http://host:8080/path?x=1",
        "if token == other",
        "the password is wrong",
        "key.deserializer=org.apache.X",
        "count=1",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--password", "s3cret", "--n", "1"], ["--password", "***", "--n", "1"]),
        (["--db-password=s3cret"], ["--db-password=***"]),
        (["-token", "abc"], ["-token", "***"]),
        (["--secret", "--verbose", "x"], ["--secret", "--verbose", "x"]),
        (["-D", "sasl.password=x", "input.csv"], ["-D", "sasl.password=***", "input.csv"]),
        (["postgresql://me:pw@db"], ["postgresql://me:***@db"]),
    ],
)
def test_a_credential_in_arguments_is_hidden(arguments: list[str], shown: list[str]) -> None:
    assert redact_arguments(arguments) == shown


@pytest.mark.parametrize(
    "name",
    ["password", "sasl.password", "PGPASSWORD", "ssl.key.password", "sasl.jaas.config", "apiKey",
     "fs.s3a.access.key", "fs.s3a.secret.key", "aws_secret_access_key", "auth-token",
     "google.application.credentials", "ssl.keystore.key", "ssl.key.pem", "private_key", "pwd",
     "fs.azure.account.key.x.blob.core.windows.net", "penstock.storage.az.sas-key",
     "penstock.storage.s3.sse-customer-key-base64", "penstock.storage.s3.secret-access-key"],
)  # fmt: skip
def test_names_of_credentials_are_recognised(name: str) -> None:
    assert is_sensitive(name)


@pytest.mark.parametrize("name", ["key", "key.deserializer", "host", "user", "parallelism", "uid"])
def test_other_names_are_not_credentials(name: str) -> None:
    assert not is_sensitive(name)


def test_plain_data_is_hidden_by_name_and_by_content() -> None:
    data = {"password": "x", "urls": ["a://b:c@d"], "deep": {"api-key": 1}, "n": 1}
    assert redact_value(data) == {
        "password": "***", "urls": ["a://b:***@d"], "deep": {"api-key": "***"}, "n": 1,
    }  # fmt: skip


@pytest.mark.parametrize("text", ["a" * 3_000_000, "://a:" * 300_000, "password=" * 300_000])
def test_a_long_text_takes_no_longer_than_its_length(text: str) -> None:
    started = time.process_time()
    redact(text)
    assert time.process_time() - started < 10


def test_every_logger_hides_credentials() -> None:
    root = Path(penstock.__file__).parent
    for path in root.rglob("*.py"):
        module = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("getLogger"):
                (argument,) = call.args or [ast.Constant("")]
                name = ast.unparse(argument)
                name = module if name == "__name__" else name.strip("'\"")
                if name.startswith("penstock") and "redaction" not in module:
                    filters = logging.getLogger(name).filters
                    assert any(isinstance(f, RedactingFilter) for f in filters), name


def test_log_lines_and_their_tracebacks_hide_credentials(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = logging.getLogger("penstock.job")
    try:
        message = "cannot reach a://b:s3cret@c"
        raise ValueError(message)
    except ValueError as error:
        logger.warning("Job %r failed: %s", "x", error, exc_info=True)
    assert "cannot reach a://b:***@c" in caplog.text
    formatted = logging.Formatter().format(caplog.records[0])
    assert "s3cret" not in formatted
    assert "Traceback" in formatted


def test_a_value_without_a_text_does_not_make_logging_fail(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        def __str__(self) -> str:
            raise ZeroDivisionError

    logging.getLogger("penstock.job").warning("failed: %s", Broken())
    assert caplog.messages == ["failed: %s (a value raises ZeroDivisionError)"]
