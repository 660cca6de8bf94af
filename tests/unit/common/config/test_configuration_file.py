from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Configuration
from penstock.common.config.configuration_file import (
    CONF_DIR,
    global_configuration,
    load_configuration,
    set_global_overrides,
)
from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import ConfigurationError, ConfigurationFileError


@pytest.fixture(autouse=True)
def nothing_set_outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(CONF_DIR, raising=False)
    set_global_overrides({})
    yield
    set_global_overrides({})


def load(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return load_configuration(path).to_dict()


def test_keys_may_be_nested_flat_or_both(tmp_path: Path) -> None:
    nested = """
        execution:
          checkpointing:
            interval: 10 s
            dir: /c
          checkpointing.mode: AT_LEAST_ONCE
        restart-strategy: fixed-delay
        restart-strategy.fixed-delay.attempts: 3
    """
    assert load(tmp_path, nested) == {
        "execution.checkpointing.interval": "10 s",
        "execution.checkpointing.dir": "/c",
        "execution.checkpointing.mode": "AT_LEAST_ONCE",
        "restart-strategy": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
    }


@pytest.mark.parametrize("text", ["", "# nothing but a comment\n", "---\n"])
def test_a_file_may_say_nothing(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text) == {}


def test_words_that_yaml_would_convert_stay_strings(tmp_path: Path) -> None:
    text = "restart-strategy.type: off\npipeline.name: 1:30\npenstock.job-id: 007\n"
    assert load(tmp_path, text) == {
        "restart-strategy.type": "off",
        "pipeline.name": "1:30",
        "penstock.job-id": "007",
    }


def test_a_list_is_one_value(tmp_path: Path) -> None:
    assert load(tmp_path, "pipeline.jars: [a.jar, b.jar]\n") == {"pipeline.jars": "a.jar;b.jar"}


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a.b: 1\n", 1, "unknown configuration key 'a.b'"),
        ("pipeline.name: x\nparalelism:\n  default: 2\n", 3, "did you mean 'parallelism.default'"),
        ("\nexecution:\n  checkpointing:\n    interval: soon\n", 4, "got 'soon'"),
        ("pipeline:\n  name: a\npipeline.name: b\n", 3, "set twice, first in line 2"),
        ("pipeline.name:\n", 1, "needs a value"),
        ("pipeline.name: [{a: 1}]\n", 1, "needs a value, or a list of plain values"),
        ("? [a, b]\n: 1\n", 1, "a key must be plain text"),
        ("pipeline: &it\n  inner: *it\n", 1, "contains itself"),
        ("- a\n- b\n", 1, "key: value"),
        ("just words\n", 1, "key: value"),
        ("pipeline.name: 'x\nparallelism.default: 1\n", 3, "found unexpected end of stream"),
        ("a: 1\n\tb: 2\n", 2, "cannot start any token"),
        ("a: *nowhere\n", 1, "undefined alias"),
    ],
)
def test_what_cannot_be_used_is_rejected_with_its_line(
    tmp_path: Path, text: str, line: int, reason: str
) -> None:
    with pytest.raises(ConfigurationFileError) as caught:
        load(tmp_path, text)
    assert caught.value.path == str(tmp_path / "config.yaml")
    assert caught.value.line == line
    assert reason in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFileError, match=r"no\.yaml: No such file or directory"):
        load_configuration(tmp_path / "no.yaml")
    with pytest.raises(ConfigurationFileError, match="Is a directory"):
        load_configuration(tmp_path)
    (tmp_path / "config.yaml").write_bytes(b"pipeline.name: \xff\n")
    with pytest.raises(ConfigurationFileError, match="not UTF-8"):
        load_configuration(tmp_path / "config.yaml")
    (tmp_path / "config.yaml").write_bytes(b"pipeline.name: \x00\n")
    with pytest.raises(ConfigurationFileError, match="special characters"):
        load_configuration(tmp_path / "config.yaml")


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=20)


@given(NAMES)
def test_any_name_written_as_yaml_is_read_back(tmp_path_factory: object, name: str) -> None:
    assert isinstance(tmp_path_factory, pytest.TempPathFactory)
    path = tmp_path_factory.mktemp("conf") / "config.yaml"
    path.write_text(yaml.safe_dump({"pipeline": {"name": name}}, allow_unicode=True), "utf-8")
    assert load_configuration(path).get_string("pipeline.name", "") == name


def test_nothing_is_set_outside_unless_somebody_does() -> None:
    assert global_configuration() == Configuration()


def test_the_command_line_overrides_the_file_under_any_key_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text("execution.checkpointing.dir: /f\npipeline.name: f\n")
    monkeypatch.setenv(CONF_DIR, str(tmp_path))
    set_global_overrides({"state.checkpoints.dir": "/o"})
    assert global_configuration().to_dict() == {
        "state.checkpoints.dir": "/o",
        "pipeline.name": "f",
    }


def test_a_directory_without_the_file_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONF_DIR, str(tmp_path))
    with pytest.raises(ConfigurationFileError, match=r"config\.yaml: No such file"):
        StreamExecutionEnvironment.get_execution_environment()


def test_an_environment_starts_from_what_is_set_outside_and_the_program_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "execution.checkpointing.interval: 10 s\nparallelism.default: 3\n"
    (tmp_path / "config.yaml").write_text(text)
    monkeypatch.setenv(CONF_DIR, str(tmp_path))
    set_global_overrides({"parallelism.default": "5"})
    env = StreamExecutionEnvironment.get_execution_environment()
    assert (env.get_parallelism(), env.get_checkpoint_interval()) == (5, 10_000)
    given_too = Configuration().set_integer("parallelism.default", 7)
    env = StreamExecutionEnvironment.get_execution_environment(given_too)
    assert env.enable_checkpointing(500).get_checkpoint_interval() == 500
    assert env.get_parallelism() == 7


def test_overrides_are_checked_like_anything_else() -> None:
    set_global_overrides({"execution.checkpointing.intervall": "1 s"})
    with pytest.raises(ConfigurationError, match=r"execution\.checkpointing\.interval'\?"):
        StreamExecutionEnvironment.get_execution_environment()
