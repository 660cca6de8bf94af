from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import main

JOB = """
import sys
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(int(sys.argv[1]))
words = env.from_collection(["a b"]).flat_map(str.split)
words.key_by(lambda word: word).reduce(max).print()
env.execute("words")
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


def explain(*args: object) -> Result:
    return CliRunner().invoke(main, ["explain", *map(str, args)])


def test_explain_shows_stages_channels_chains_and_parallelism(job: Path) -> None:
    result = explain(job, 3)
    assert result.exit_code == 0, result.output
    assert "job 'words': 3 stages, 2 channels" in result.output
    assert "stage 2  parallelism 3" in result.output
    assert "channel 1 (hash) from stage 1" in result.output
    assert "Reduce  [keyed state]" in result.output


def test_explain_gives_json(job: Path) -> None:
    (plan,) = json.loads(explain(job, 1, "--json").output)
    assert plan["job"] == "words"
    assert [s["name"] for s in plan["stages"]] == [
        "Collection Source -> FlatMap",
        "Reduce -> Print to Std. Out",
    ]


def test_explain_prints_a_mermaid_diagram(job: Path) -> None:
    assert explain(job, 1, "--mermaid").output.startswith("flowchart LR\n")


def test_explain_runs_nothing(job: Path, tmp_path: Path) -> None:
    job.write_text(JOB.replace("str.split", f"lambda w: open({str(tmp_path / 'ran')!r}, 'w')"))
    assert explain(job, 1).exit_code == 0
    assert not (tmp_path / "ran").exists()


def test_explain_shows_every_job_of_a_program(job: Path) -> None:
    job.write_text(
        JOB
        + "list(env.from_collection([1]).execute_and_collect('second'))\n"
        + "env.from_collection([1]).print()\nenv.execute_async('third').cancel()\n"
    )
    output = explain(job, 1).output
    assert [f"job {name!r}" in output for name in ("words", "second", "third")] == [True] * 3


def test_a_program_that_executes_no_job_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("x = 1\n")
    result = explain(path)
    assert result.exit_code == 1
    assert f"{path} runs no job: it never calls execute()" in result.output


def test_an_invalid_job_fails_with_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(JOB.replace(".print()", ""))
    result = explain(path, 1)
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "no sink" in result.output
    assert explain(tmp_path / "missing.py").exit_code == 2


@pytest.mark.parametrize("output", [(), ("--json",), ("--mermaid",)])
def test_a_plan_shows_no_credentials(tmp_path: Path, output: tuple[str, ...]) -> None:
    program = tmp_path / "job.py"
    program.write_text(
        "from penstock.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "stream = env.from_collection([1]).map(lambda n: n)\n"
        "stream.name('to postgresql://me:s3cret@db').print()\n"
        "env.execute('with token=s3cret')\n"
    )
    shown = CliRunner().invoke(main, ["explain", str(program), *output])
    assert shown.exit_code == 0, shown.output
    assert "s3cret" not in shown.stdout
    assert "postgresql://me:***@db" in shown.stdout


def test_an_error_of_a_program_shows_no_credentials(tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text("raise ValueError('cannot reach postgresql://me:s3' + 'cret@db/shop')\n")
    shown = CliRunner().invoke(main, ["run", str(program)])
    assert "s3cret" not in shown.output
    assert "postgresql://me:***@db/shop" in shown.output
