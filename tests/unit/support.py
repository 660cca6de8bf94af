"""Programs in tests: an environment that runs in this process, and short ways to ask it."""

from __future__ import annotations

from typing import Any

from penstock.common import Configuration
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.graph.plan import Plan
from penstock.testing.inline import run_inline


def environment(parallelism: int = 1, **settings: str) -> StreamExecutionEnvironment:
    """An environment without Spark; `__` in a setting stands for a dot, `_` for a hyphen."""
    configuration = Configuration()
    for name, value in settings.items():
        configuration.set_string(name.replace("__", ".").replace("_", "-"), value)
    env = run_inline(StreamExecutionEnvironment.get_execution_environment(configuration))
    return env.set_parallelism(parallelism)


def collected(stream: DataStream) -> list[Any]:
    """Run the program and return the records of one stream."""
    with stream.execute_and_collect() as records:
        return list(records)


def plan_of(env: StreamExecutionEnvironment, name: str = "job") -> Plan:
    return env._plan(name)
