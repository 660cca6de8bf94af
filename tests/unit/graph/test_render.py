from __future__ import annotations

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
