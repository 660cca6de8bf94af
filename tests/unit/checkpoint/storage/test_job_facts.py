from __future__ import annotations

from pathlib import Path

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.job_facts import JobFacts, PlannedStep, planned_steps
from penstock.common import Types
from penstock.common.text.tolerant_json import decode_json
from penstock.datastream import OutputTag
from penstock.datastream.connectors import DiscardingSink
from penstock.ids import JobKey
from tests.unit.cli.job_fixtures import end, endless_job
from tests.unit.support import environment, eventually, plan_of


def test_a_plan_is_written_with_its_stages_and_edges() -> None:
    env = environment(2)
    tag = OutputTag("late", Types.LONG())
    numbers = env.from_collection([1, 2, 3], Types.LONG()).map(abs, Types.LONG()).uid("abs")
    keyed = numbers.key_by(lambda n: n, Types.LONG()).reduce(max).uid("max")
    keyed.sink_to(DiscardingSink()).uid("out")
    keyed.get_side_output(tag).rebalance().sink_to(DiscardingSink()).uid("late")
    steps = {step.uid: step for step in planned_steps(plan_of(env))}
    source = next(step for step in steps.values() if step.kind == "source")
    assert [edge.source for edge in steps["abs"].inputs] == [source.uid]
    assert (steps["abs"].stage, steps["abs"].inputs[0].exchange) == (1, "rebalance")
    (edge,) = steps["max"].inputs
    assert (edge.source, edge.exchange, edge.input) == ("abs", "hash", 1)
    assert edge.channel is not None
    assert steps["max"].max_parallelism == 128
    (chained,) = steps["out"].inputs
    assert (chained.exchange, chained.channel) == ("forward", None)
    assert steps["out"].stage == steps["max"].stage != steps["abs"].stage
    (late,) = steps["late"].inputs
    assert (late.side_output, late.exchange) == ("late", "rebalance")
    channels = {e.channel for s in steps.values() for e in s.inputs} - {None}
    assert len(channels) == 3


def test_a_job_file_of_an_older_version_is_read() -> None:
    old = b'{"name":"a","created":1.0,"plan":[{"uid":"u","name":"n","parallelism":2}]}'
    assert decode_json(old, JobFacts) == JobFacts("a", 1.0, plan=[PlannedStep("u", "n", 2)])


def test_the_settings_of_a_job_are_written_without_credentials(tmp_path: Path) -> None:
    client = endless_job(
        tmp_path,
        execution__checkpointing__interval="1 min",
        penstock__storage__s3__secret_access_key="hidden!",
        pipeline__global_job_parameters="db.password:hidden!,rows:5",
    )
    (directory,) = (path for path in tmp_path.iterdir())
    job = JobDir(tmp_path, JobKey(directory.name))
    eventually(lambda: job.read_facts() is not None)
    facts = job.read_facts()
    end(client)
    assert facts is not None
    assert facts.settings["execution.checkpointing.interval"] == "1 min"
    assert "hidden!" not in str(facts)
    assert "penstock.storage.s3.secret-access-key" not in facts.settings
    assert (facts.mode, facts.supervised) == ("STREAMING", False)
    assert set(facts.versions) == {"penstock", "python", "architecture"}
