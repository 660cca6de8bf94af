"""`penstock advise`: for a job with a history, for one without, and before there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.checkpoint.history import CheckpointStats, History, Recovery
from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.job_facts import JobFacts
from penstock.cli.exit_codes import ExitCode
from penstock.common import JobClient
from penstock.common.config.configuration_file import load_configuration
from penstock.common.config.known_options import check_option
from penstock.ids import JobKey
from tests.unit.cli.job_fixtures import end, endless_job, job_directory, json_of, penstock
from tests.unit.models.histories import history, recovery
from tests.unit.support import eventually


@pytest.fixture
def client(tmp_path: Path) -> Iterator[JobClient]:
    client = endless_job(tmp_path, execution__checkpointing__interval="50 ms")
    yield client
    end(client)


def recorded(
    directory: Path, checkpoints: list[CheckpointStats], recoveries: list[Recovery] | None = None
) -> None:
    """Write the history of a job named `job`."""
    written = History(job_directory(directory, "job").storage)
    for one in checkpoints:
        written.write(one)
    for another in recoveries or []:
        written.add_recovery(another)


def typical(directory: Path, interval_s: float) -> None:
    recoveries = [recovery(n, redeploy_s=3.0) for n in (2, 3, 4)]
    recorded(directory, history(12, interval_s, lost_s=0.1), recoveries)


def advice(directory: Path, *options: object) -> Any:
    return json_of(penstock("advise", "job", "--dir", directory, "--json", *options))


# -- a running job ------------------------------------------------------------------------------


def test_a_running_job_gets_advice_from_its_own_history(client: JobClient, tmp_path: Path) -> None:
    eventually(lambda: len(History(_directory(tmp_path)).checkpoints()) > 5)
    found = json_of(penstock("advise", "endless", "--dir", tmp_path, "--json"))
    assert found["job"].startswith("endless-")
    assert found["checkpoint"]["duration"]["observations"] > 4
    assert found["load"]["rate"]["observations"] > 0
    assert found["advice"]["current"]["interval_s"] < 5
    assert found["consistency"]["exactly_once"]["value"] == 1.0
    shown = penstock("advise", "endless", "--dir", tmp_path)
    assert shown.exit_code == 0
    assert "recovery target" in shown.stdout
    assert "P(exactly once)" in shown.stdout


def _directory(tmp_path: Path) -> Any:
    from penstock.checkpoint.storage.job_dir import jobs_in

    return next(iter(jobs_in(tmp_path))).storage


# -- a job with a history -----------------------------------------------------------------------


def test_an_interval_within_its_bounds_is_called_fine_and_no_line_is_to_be_pasted(
    tmp_path: Path,
) -> None:
    typical(tmp_path, 10.0)
    found = advice(tmp_path)
    assert (found["verdict"], found["configuration"]) == ("fine", {})
    shown = penstock("advise", "job", "--dir", tmp_path).stdout
    assert "The interval of 10.0 s is fine" in shown
    assert "execution.checkpointing.interval" not in shown
    assert "RECOMMENDED" not in shown


def test_a_bad_interval_is_changed_for_a_stated_reason(tmp_path: Path) -> None:
    typical(tmp_path, 300.0)
    found = advice(tmp_path, "--recovery-target", "60 s")
    assert found["verdict"] == "change"
    assert found["advice"]["current"]["normal_worst_s"] > 60
    assert found["advice"]["recommended"]["normal_worst_s"] <= 60
    shown = penstock("advise", "job", "--dir", tmp_path).stdout
    assert "Change the interval from 5 min 0 s to " in shown
    assert "to catch up within 1 min 0 s after a failure" in shown


def test_the_lines_to_paste_are_a_configuration_that_penstock_takes(tmp_path: Path) -> None:
    typical(tmp_path, 300.0)
    shown = penstock("advise", "job", "--dir", tmp_path).stdout
    lines = [line for line in shown.splitlines() if line.startswith("execution.")]
    assert lines
    file = tmp_path / "config.yaml"
    file.write_text("\n".join(lines))
    pasted = load_configuration(file).to_dict()
    assert pasted == advice(tmp_path)["configuration"]
    for key, value in pasted.items():
        check_option(key, value)


def test_visibility_and_overhead_change_the_advice(tmp_path: Path) -> None:
    typical(tmp_path, 10.0)
    assert advice(tmp_path, "--visibility", "5 s")["advice"]["upper"]["kind"] == "visibility"
    assert advice(tmp_path, "--overhead", "0.4%")["advice"]["lower"]["kind"] == "overhead"
    often = advice(tmp_path, "--failures-per-day", "2000")
    assert often["advice"]["cheapest_s"] < advice(tmp_path)["advice"]["cheapest_s"]


def test_without_a_possible_interval_it_says_what_to_change(tmp_path: Path) -> None:
    typical(tmp_path, 10.0)
    found = advice(tmp_path, "--rate", "1950", "--capacity", "2000")
    assert found["verdict"] == "impossible"
    assert found["configuration"] == {}
    assert found["advice"]["levers"]
    shown = penstock(
        "advise", "job", "--dir", tmp_path, "--rate", "1950", "--capacity", "2000"
    ).stdout
    assert "No interval meets all goals" in shown
    assert "- load: " in shown


def test_a_job_that_gets_more_than_it_can_process_is_told_so(tmp_path: Path) -> None:
    typical(tmp_path, 10.0)
    shown = penstock("advise", "job", "--dir", tmp_path, "--rate", "5000").stdout
    assert "more records arrive than the job can process" in shown


def test_what_the_history_lacks_is_named(tmp_path: Path) -> None:
    recorded(tmp_path, history(12))
    missing = " ".join(advice(tmp_path)["missing"])
    assert "No recovery after the death of a driver is recorded" in missing
    assert "estimated from micro-batches" in missing
    assert "same interval" in missing
    assert "--failures-per-day" in missing


def test_a_job_that_checkpoints_at_least_once_has_no_probability_of_exactly_once(
    tmp_path: Path,
) -> None:
    recorded(tmp_path, [msgspec.structs.replace(c, barriers="tracked") for c in history(12)])
    assert advice(tmp_path)["guarantee"] == "AT_LEAST_ONCE"
    shown = penstock("advise", "job", "--dir", tmp_path).stdout
    assert "P(exactly once) does not apply" in shown


def test_the_configured_interval_counts_and_a_longer_one_in_the_history_is_mentioned(
    tmp_path: Path,
) -> None:
    typical(tmp_path, 10.0)
    job = JobDir(tmp_path, JobKey("job"))
    job.write_facts(JobFacts("job", 1.0, settings={"execution.checkpointing.interval": "5 s"}))
    found = advice(tmp_path)
    assert found["advice"]["current"]["interval_s"] == 5.0
    assert "Checkpoints are 10 s apart although the interval is 5 s" in found["missing"][0]
    job.write_facts(JobFacts("job", 1.0, settings={"execution.checkpointing.interval": "soon"}))
    assert advice(tmp_path)["advice"]["current"]["interval_s"] == 10.0


def test_damaged_records_are_left_out_with_a_warning(tmp_path: Path) -> None:
    typical(tmp_path, 10.0)
    (tmp_path / "job" / "history" / "000000000003.json").write_text("{")
    result = penstock("advise", "job", "--dir", tmp_path)
    assert result.exit_code == 0
    assert "not shown, because it cannot be read" in result.stderr


# -- no history ---------------------------------------------------------------------------------


def test_a_job_without_history_says_what_is_missing(tmp_path: Path) -> None:
    job_directory(tmp_path, "job")
    result = penstock("advise", "job", "--dir", tmp_path)
    assert result.exit_code == ExitCode.FAILED
    assert "has no completed checkpoint" in result.stderr
    assert "--state-size" in result.stderr
    described = penstock("advise", "job", "--dir", tmp_path, "--state-size", "1 gb")
    assert described.exit_code == 0
    assert "There is no history" in described.stdout


def test_without_a_job_one_is_described() -> None:
    result = penstock("advise")
    assert result.exit_code == ExitCode.FAILED
    assert "--state-size" in result.stderr
    options = ("--state-size", "2gb", "--rate", 10_000, "--capacity", 20_000, "--json")
    found = json_of(penstock("advise", *options))
    assert (found["job"], found["verdict"]) == (None, "new")
    assert "execution.checkpointing.interval" in found["configuration"]
    assert found["consistency"] is None


def test_incremental_checkpoints_are_recommended_where_full_ones_cost_too_much() -> None:
    options = ("--state-size", "50gb", "--full-checkpoints", "--visibility", "10 min")
    shown = penstock("advise", *options).stdout
    assert "No interval meets all goals" in shown
    assert "execution.checkpointing.incremental: true" in shown
    assert penstock("advise", "--state-size", "50gb", "--visibility", "10 min").exit_code == 0


def test_a_job_whose_load_is_unknown_gets_an_interval_and_is_told_so() -> None:
    shown = penstock("advise", "--state-size", "1gb").stdout
    assert "Take a checkpoint every" in shown
    assert "the recovery target is not taken into account" in shown


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--recovery-target", "soon"),
        ("--recovery-target", "0 s"),
        ("--overhead", "150%"),
        ("--overhead", "much"),
        ("--state-size", "large"),
        ("--rate", "-1"),
        ("--capacity", "0"),
        ("--failures-per-day", "-1"),
    ],
)
def test_goals_that_make_no_sense_are_refused(option: str, value: str) -> None:
    result = penstock("advise", "--state-size", "1gb", option, value)
    assert result.exit_code == ExitCode.USAGE
    assert option in result.stderr


def test_an_unknown_job_is_an_error(tmp_path: Path) -> None:
    assert penstock("advise", "nobody", "--dir", tmp_path).exit_code == ExitCode.USAGE
