from __future__ import annotations

import json

import pytest

from penstock.datastream import CoMapFunction
from penstock.graph.plan import Plan
from penstock.graph.render import render_json, render_mermaid, render_text
from tests.unit.support import environment, plan_of


def word_count() -> Plan:
    env = environment(2)
    words = env.from_collection(["a b"]).uid("lines").flat_map(str.split).uid("words")
    counts = words.set_parallelism(1).key_by(lambda w: w).reduce(max).uid("counts")
    counts.map(str).uid("texts").print().uid("shown")
    counts.print("raw").uid("raw")
    return plan_of(env, "word count")


TEXT = """\
job 'word count': 2 stages, 1 channel

stage 0  parallelism 1
  runs     Collection Source  (uid lines)
             -> FlatMap  (uid words)
  writes   channel 0 (hash) to stage 1

stage 1  parallelism 2
  reads    channel 0 (hash) from stage 0
  runs     Reduce  [keyed state]  (uid counts)
             -> Map  (uid texts)
               -> Print to Std. Out  (uid shown)
             -> Print to Std. Out  (uid raw)"""

MERMAID = """\
flowchart LR
  s0["Collection Source -> FlatMap<br/>x1"]
  s1["Reduce -> (Map -> Print to Std. Out, Print to Std. Out)<br/>x2"]
  s0 -->|hash| s1"""


def test_a_plan_as_text() -> None:
    assert render_text(word_count()) == TEXT


def test_a_plan_as_a_mermaid_flowchart() -> None:
    assert render_mermaid(word_count()) == MERMAID


def test_a_plan_as_json() -> None:
    data = render_json(word_count())
    assert data["channels"] == [
        {
            "id": 0,
            "from_stage": 0,
            "to_stage": 1,
            "exchange": "hash",
            "input": 1,
            "side_output": None,
        }
    ]
    source, keyed = data["stages"]
    assert source["operators"][0] == {
        "name": "Collection Source",
        "kind": "source",
        "uid": "lines",
        "keyed": False,
        "side_outputs": [],
        "description": None,
    }
    assert (source["inputs"], source["outputs"]) == ([], [0])
    assert (keyed["parallelism"], keyed["max_parallelism"]) == (2, 128)
    assert [o["uid"] for o in keyed["operators"]] == ["counts", "texts", "shown", "raw"]


def test_an_execution_plan_is_flinks_json_plan_and_a_python_literal() -> None:
    env = environment(2)
    lines = env.from_collection(["a"]).name("😀 'lines'")
    other = env.from_collection(["b"])
    lines.print("first")
    mapped = lines.union(other).map(str).set_parallelism(3).set_description("to text")
    mapped.key_by(lambda w: w).reduce(max).print()
    text = env.get_execution_plan()
    plan = eval(text)
    assert plan == json.loads(text)
    first, second, upper, reduced, *sinks = plan["nodes"]
    assert [n["pact"] for n in (first, second)] == ["Data Source"] * 2
    assert [n["pact"] for n in sinks] == ["Data Sink"] * 2
    assert "predecessors" not in first
    assert first["type"] == first["contents"] == "😀 'lines'"
    assert {**upper, "id": 0} == {
        "id": 0,
        "type": "Map",
        "pact": "Operator",
        "contents": "to text",
        "parallelism": 3,
        "predecessors": [
            {"id": first["id"], "ship_strategy": "REBALANCE", "side": "first"},
            {"id": second["id"], "ship_strategy": "REBALANCE", "side": "first"},
        ],
    }
    assert reduced["predecessors"][0]["ship_strategy"] == "HASH"
    assert eval(env.get_execution_plan()) == plan


@pytest.mark.parametrize("exchange", ["broadcast", "rebalance", "rescale", "shuffle", "forward"])
def test_the_ship_strategy_is_that_of_the_program(exchange: str) -> None:
    env = environment()
    getattr(env.from_collection([1]), exchange)().map(str).print()
    (upper,) = [n for n in eval(env.get_execution_plan())["nodes"] if n["type"] == "Map"]
    assert upper["predecessors"][0]["ship_strategy"] == exchange.upper()


def test_two_connected_streams_are_two_sides() -> None:
    class Both(CoMapFunction[int, int, int]):
        def map1(self, value: int) -> int:
            return value

        def map2(self, value: int) -> int:
            return value

    env = environment()
    env.from_collection([1]).connect(env.from_collection([2])).map(Both()).print()
    (both,) = [n for n in eval(env.get_execution_plan())["nodes"] if n["pact"] == "Operator"]
    assert [p["side"] for p in both["predecessors"]] == ["first", "second"]
