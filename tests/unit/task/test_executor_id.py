"""The id of a worker's executor, from the command that started one of its parents."""

import os
import subprocess
import sys

import pytest

_ASK = "from penstock.task.executor_id import executor_id; print(executor_id())"
_PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_ASK!r}], check=True)"


def asked(code: str, *arguments: str, **variables: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    env = {**os.environ, **variables}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout[:-1]


@pytest.mark.parametrize("code", [_ASK, _PARENT])
def test_it_is_the_option_of_a_parent(code: str) -> None:
    assert asked(code, "--executor-id", "7") == "7"


def test_it_is_empty_in_the_driver_and_comes_from_the_environment_elsewhere() -> None:
    assert asked(_ASK) == ""
    assert asked(_ASK, "--executor-id") == ""
    assert asked(_ASK, SPARK_EXECUTOR_ID="4") == "4"
