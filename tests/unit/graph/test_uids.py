from __future__ import annotations

import os
import subprocess
import sys

from penstock.datastream import DataStream, StreamExecutionEnvironment
from tests.unit.support import environment, plan_of

PROGRAM = """
from tests.unit.graph.test_uids import uids, word_count
from tests.unit.support import environment
print(uids(word_count(environment())))
"""


def word_count(env: StreamExecutionEnvironment) -> StreamExecutionEnvironment:
    words = env.from_collection(["a b"]).flat_map(str.split)
    words.key_by(lambda w: w).reduce(max).print()
    words.union(words.map(str)).rebalance().print()
    return env


def uids(env: StreamExecutionEnvironment) -> list[str]:
    plan = plan_of(env)
    return [n.uid for n in sorted((n for s in plan.stages for n in s.nodes), key=lambda n: n.id)]


def test_uids_are_the_same_in_every_process() -> None:
    seed = "4711" if os.environ.get("PYTHONHASHSEED") != "4711" else "4712"
    there = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout == f"{uids(word_count(environment()))}\n"


def test_uids_do_not_depend_on_chaining_parallelism_or_names() -> None:
    plain = uids(word_count(environment()))
    assert uids(word_count(environment(3))) == plain
    assert uids(word_count(environment().disable_operator_chaining())) == plain
    env = environment()
    env.from_collection([1]).name("x").map(str).name("y").print()
    named = uids(env)
    env.from_collection([1]).map(repr).print()
    assert uids(env) == named


def test_uids_change_with_the_steps_before_and_with_the_exchange() -> None:
    def last_uid(between: str) -> str:
        env = environment()
        stream: DataStream = env.from_collection([1])
        if between == "map":
            stream = stream.map(str)
        elif between:
            stream = getattr(stream, between)()
        stream.print()
        return uids(env)[-1]

    assert len({last_uid(between) for between in ("", "map", "rebalance", "shuffle")}) == 4


def test_equal_steps_get_different_uids_by_their_order() -> None:
    env = environment()
    source = env.from_collection([1])
    source.map(str).print()
    source.map(str).print()
    assert len(set(uids(env))) == 5


def test_an_explicit_uid_is_kept() -> None:
    env = environment()
    env.from_collection([1]).uid("mine").print()
    assert uids(env)[0] == "mine"
