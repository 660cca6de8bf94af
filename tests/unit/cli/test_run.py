"""Programs under `penstock run`: settings, errors, signals, supervision."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from penstock.cli.commands.run import child_command
from penstock.common.config.configuration_file import global_configuration
from penstock.common.pyflink.import_alias import PyFlinkImportAlias
from tests.unit.cli.job_fixtures import (
    COUNT,
    end,
    endless_job,
    json_of,
    penstock,
)
from tests.unit.support import eventually

SHOW = """
import sys
import beside
from penstock.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
print("argv", *sys.argv[1:])
print("parallelism", env.get_parallelism())
for key in sorted(env._configuration.key_set()):
    print(key, env._configuration.get(key))
"""

FAILING = """
from penstock.datastream import StreamExecutionEnvironment
from penstock.testing.inline import run_inline

def parse(text):
    return int(text)

env = run_inline(StreamExecutionEnvironment.get_execution_environment())
env.from_collection(["1", "two"]).map(parse).print()
env.execute("failing")
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "job.py"
    path.write_text(text)
    return path


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_CONF_DIR", raising=False)


# -- settings -----------------------------------------------------------------------------------


def test_arguments_in_a_file_follow_those_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("")
    job, file = write(tmp_path, SHOW), tmp_path / "arguments.json"
    file.write_text('["--password", "s3cret", "-p"]')
    result = penstock("run", "--args-file", file, job, "x")
    assert result.stdout.splitlines()[0] == "argv x --password s3cret -p"
    command = child_command(job, ["x"], [], None, args_file=file)
    assert "s3cret" not in " ".join(command)
    again = penstock(*command[command.index("run") :])
    assert again.stdout == result.stdout


@pytest.mark.parametrize("text", ["", "{}", '"x"', "[1]", "[\xff"])
def test_a_file_of_arguments_that_is_no_list_of_texts_is_refused(tmp_path: Path, text: str) -> None:
    job, file = write(tmp_path, SHOW), tmp_path / "arguments.json"
    file.write_bytes(text.encode("latin-1"))
    result = penstock("run", "--args-file", file, job)
    assert result.exit_code == 2
    assert "--args-file needs" in result.stderr


def test_a_program_gets_its_arguments_its_directory_and_the_settings(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("")
    job = write(tmp_path, SHOW)
    file = tmp_path / "more.yaml"
    file.write_text("parallelism.default: 3\nstate.backend: memory\nheartbeat.interval: 1 s\n")
    options = ("-c", file, "-D", "state.backend.type=rocksdb", "-p", 7, "--job-id", "mine")
    restore = ("-s", "/sp", "-n", "--claim-mode", "claim", "--fresh")
    result = penstock("run", *options, *restore, job, "-p", "x", "--json")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "argv -p x --json",
        "parallelism 7",
        "execution.state-recovery.claim-mode CLAIM",
        "execution.state-recovery.ignore-unclaimed-state true",
        "execution.state-recovery.path /sp",
        "heartbeat.interval 1 s",
        "parallelism.default 7",
        "penstock.job-id mine",
        "penstock.recovery.fresh true",
        "state.backend.type rocksdb",
    ]
    assert global_configuration().key_set() == set()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-D", "paralelism.default=2"), "did you mean 'parallelism.default'?"),
        (("-D", "parallelism.default=many"), "needs a whole number above zero; got 'many'"),
        (("-D", "parallelism.default"), "is not of the form key=value"),
        (("-p", "0"), "0 is not in the range"),
        (("--claim-mode", "LEGACY"), "'LEGACY' is not one of"),
        (("-c", "missing.yaml"), "does not exist"),
        (("--job-id", "../up"), "penstock.job-id"),
        (("--supervise", "-D", "heartbeat.timeout=1 s"), "must be longer than heartbeat.interval"),
    ],
)
def test_wrong_settings_are_refused_before_the_program_runs(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    result = penstock("run", *options, write(tmp_path, "print('ran')"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_missing_program_is_a_usage_error(tmp_path: Path) -> None:
    assert penstock("run", tmp_path / "missing.py").exit_code == 2


def test_the_command_of_a_supervised_driver_has_all_options(tmp_path: Path) -> None:
    command = child_command(Path("job.py"), ["-x", "1"], ["a=b c", "d=e"], Path("c.yaml"))
    assert command[:4] == [sys.executable, "-m", "penstock.cli.main", "run"]
    assert command[4:] == ["-c", "c.yaml", "-D", "a=b c", "-D", "d=e", "--", "job.py", "-x", "1"]


# -- errors -------------------------------------------------------------------------------------


def test_an_error_of_penstock_is_one_sentence(tmp_path: Path) -> None:
    no_sink = "from penstock.datastream import *\nStreamExecutionEnvironment().execute()\n"
    result = penstock("run", write(tmp_path, no_sink))
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert "Error: no sink" in result.stderr


UNEXECUTED = """
from penstock.datastream import StreamExecutionEnvironment
import sys

def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1]).print()
    env.get_execution_plan()

main()
sys.exit({code})
"""


@pytest.mark.parametrize("code", ["", "0", "None"])
def test_a_program_that_never_executes_its_job_gets_a_warning(tmp_path: Path, code: str) -> None:
    job = write(tmp_path, UNEXECUTED.format(code=code))
    result = penstock("run", job)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == (
        f"WARNING The program ends without executing the job that ends at {job}:7: add the line "
        "env.execute() after it\n"
    )


@pytest.mark.parametrize("text", ["import penstock.datastream\n", UNEXECUTED.format(code="3")])
def test_a_program_without_a_job_or_with_an_error_of_its_own_gets_none(
    tmp_path: Path, text: str
) -> None:
    assert "WARNING" not in penstock("run", write(tmp_path, text)).stderr


def test_a_program_that_executes_its_job_gets_none(tmp_path: Path) -> None:
    text = FAILING.replace('"two"', '"2"')
    result = penstock("run", write(tmp_path, text))
    assert result.exit_code == 0
    assert "without executing" not in result.stderr


@pytest.mark.parametrize("command", ["run", "explain"])
@pytest.mark.parametrize("module", ["pyflink", "pyflink.datastream"])
def test_an_import_of_pyflink_that_fails_names_the_option(
    tmp_path: Path, module: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [f for f in sys.meta_path if not isinstance(f, PyFlinkImportAlias)]
    monkeypatch.setattr(sys, "meta_path", others)
    for name in [m for m in sys.modules if m.split(".")[0] == "pyflink"]:
        monkeypatch.delitem(sys.modules, name)
    result = penstock(command, write(tmp_path, f"import {module}\n"))
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "imports pyflink, which is not installed here: run it with --pyflink" in result.stderr


def test_another_module_that_is_missing_is_shown_by_its_line(tmp_path: Path) -> None:
    result = penstock("run", write(tmp_path, "import no_such_module\n"))
    assert "ModuleNotFoundError: No module named 'no_such_module'" in result.stderr
    assert "--pyflink" not in result.stderr


def test_a_wrong_setting_inside_a_program_is_a_configuration_error(tmp_path: Path) -> None:
    text = "from penstock.datastream import *\nfrom penstock.common import Configuration\n"
    text += "StreamExecutionEnvironment(Configuration().set_string('no.such', '1'))\n"
    result = penstock("run", write(tmp_path, text))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


def test_a_function_that_fails_is_shown_by_its_own_frames(tmp_path: Path) -> None:
    job = write(tmp_path, FAILING)
    result = penstock("run", job)
    assert result.exit_code == 1
    assert "Error: step 'Map' failed on record 'two': ValueError" in result.stderr
    assert f'File "{job}", line 6, in parse' in result.stderr
    assert "runpy" not in result.stderr
    assert "penstock/" not in result.stderr


def test_a_program_that_fails_is_shown_by_its_own_frames(tmp_path: Path) -> None:
    job = write(tmp_path, "def f():\n    return 1 / 0\n\nf()\n")
    result = penstock("run", job)
    assert result.exit_code == 1
    assert result.stderr.startswith(f'Traceback (most recent call last):\n  File "{job}", line 4')
    assert result.stderr.rstrip().endswith("ZeroDivisionError: division by zero")
    broken = penstock("run", write(tmp_path, "def f(:\n"))
    assert broken.exit_code == 1
    assert "SyntaxError" in broken.stderr
    assert "runpy" not in broken.stderr


def test_a_program_may_choose_its_own_exit_code(tmp_path: Path) -> None:
    assert penstock("run", write(tmp_path, "import sys\nsys.exit(5)")).exit_code == 5


def test_a_job_that_is_already_running_is_refused(tmp_path: Path) -> None:
    client = endless_job(tmp_path / "checkpoints", name="count")
    try:
        define = f"execution.checkpointing.dir={tmp_path / 'checkpoints'}"
        result = penstock("run", "-D", define, write(tmp_path, COUNT), tmp_path / "out", 10, 0)
    finally:
        end(client)
    assert (result.exit_code, result.stderr.count("\n")) == (3, 1)
    assert "is already running" in result.stderr


# -- jobs ---------------------------------------------------------------------------------------


class Counting:
    """The program COUNT with its directories; every number must be counted once."""

    def __init__(self, tmp_path: Path, numbers: int, seconds_each: float) -> None:
        self.program = write(tmp_path, COUNT)
        self.checkpoints = tmp_path / "checkpoints"
        self.out = tmp_path / "out"
        self.numbers = numbers
        self.seconds_each = seconds_each
        self.settings = [
            *("-D", f"execution.checkpointing.dir={self.checkpoints}"),
            *("-D", "penstock.micro-batch.max-records=20"),
            *("-D", "penstock.channel.max-records=20"),
            *("-D", "restart-strategy.exponential-delay.initial-backoff=10 ms"),
            *("-p", "1"),
        ]

    def words(self, *options: str) -> list[str]:
        args = [str(self.out), str(self.numbers), str(self.seconds_each)]
        return ["run", *self.settings, *options, str(self.program), *args]

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Run it in a process of its own, until it has one more checkpoint."""
        before = len(self.completed())
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.main", *self.words(*options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        eventually(lambda: len(self.completed()) > before, every_s=0.05)
        return process

    def history(self) -> dict[str, list[dict[str, object]]]:
        facts: dict[str, list[dict[str, object]]] = json_of(
            penstock("checkpoints", "count", "--dir", self.checkpoints, "--json")
        )
        return facts

    def job(self) -> dict[str, object]:
        job: dict[str, object]
        (job,) = json_of(penstock("list", "-a", "--dir", self.checkpoints, "--json"))
        return job

    def driver(self) -> int:
        driver = self.job()["driver"]
        assert isinstance(driver, dict)
        return int(driver["pid"])

    def completed(self) -> list[Path]:
        records = self.checkpoints.glob("*/history/*.json")
        return [record for record in records if b'"COMPLETED"' in record.read_bytes()]

    def is_counted_once(self) -> bool:
        lines = Counter(
            line
            for f in self.out.rglob("[!.]*")
            if f.is_file()
            for line in f.read_text().split("\n")
        )
        del lines[""]
        each = self.numbers // 10
        return lines == Counter(f"{key} {n}" for key in range(10) for n in range(1, each + 1))


def test_a_job_logs_its_checkpoints_and_that_it_resumes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counting = Counting(tmp_path, 300, 0.02)
    process = counting.start()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "INFO checkpoint 1 completed in " in err
    assert counting.job()["status"] == "SUSPENDED"
    counting.seconds_each = 0
    result = penstock(*counting.words())
    assert (result.exit_code, result.stdout) == (0, "done\n")
    assert "Job 'count' resumes from " in caplog.text
    assert counting.is_counted_once()


def test_sigterm_ends_a_job_as_ctrl_c_does(tmp_path: Path) -> None:
    counting = Counting(tmp_path, 100_000, 0.002)
    process = counting.start()
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "ending after the running micro-batches" in err
    assert counting.job()["status"] == "SUSPENDED"


@pytest.mark.crash
def test_a_supervised_job_that_is_killed_counts_every_record_once(tmp_path: Path) -> None:
    counting = Counting(tmp_path, 1500, 0.002)
    process = counting.start("--supervise")
    assert counting.driver() != process.pid
    os.kill(counting.driver(), signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "done\n")
    assert "driver died (signal 9), attempt 2 in 0.0 s\n" in err
    assert "WARNING Job 'count' resumes from " in err
    assert counting.is_counted_once()
    assert (counting.job()["attempts"], counting.job()["status"]) == (2, "FINISHED")


@pytest.mark.crash
def test_a_supervised_job_starts_fresh_only_once(tmp_path: Path) -> None:
    counting = Counting(tmp_path, 100_000, 0.002)
    suspended = counting.start()
    suspended.send_signal(signal.SIGINT)
    suspended.communicate(timeout=60)
    process = counting.start("--supervise", "--fresh")
    os.kill(counting.driver(), signal.SIGKILL)
    eventually(lambda: bool(counting.history()["recoveries"]), every_s=0.1)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 143
    (recovery,) = counting.history()["recoveries"]
    assert recovery["attempt"] == "a3"
    assert recovery["checkpoint"] is not None
