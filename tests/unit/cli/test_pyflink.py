"""Programs that import `pyflink`, under `penstock run --pyflink`."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest

import penstock.datastream.functions
from penstock.cli.commands.run import child_command
from penstock.common.pyflink.import_alias import (
    PyFlinkImportAlias,
    installed_alias,
    use_pyflink_names,
)
from penstock.errors import NoPyFlinkModuleError
from tests.unit.cli.job_fixtures import penstock as command

WORDS = """
import sys

import pyflink.common
import pyflink.datastream.functions as functions
from pyflink.common import Types
from pyflink.datastream import MapFunction, StreamExecutionEnvironment
from penstock.testing.inline import run_inline

class Upper(MapFunction):
    def map(self, value):
        from pyflink.common.typeinfo import Types as late
        assert late is Types and issubclass(Upper, functions.MapFunction)
        return pyflink.common.Row(value.upper(), len(value))

env = run_inline(StreamExecutionEnvironment.get_execution_environment())
env.from_collection(sys.argv[1:]).map(Upper(), Types.ROW([Types.STRING(), Types.INT()])).print()
env.execute("words")
"""


def without_pyflink_names() -> None:
    sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, PyFlinkImportAlias)]
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyflink"]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def names_end_with_the_test() -> Iterator[None]:
    yield
    without_pyflink_names()


def run(tmp_path: Path, text: str, *options: str) -> tuple[int, str, str]:
    job = tmp_path / "job.py"
    job.write_text(text)
    result = command("run", *options, job, "a", "bc")
    return result.exit_code, result.stdout, result.stderr


def test_a_program_that_imports_pyflink_runs(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, WORDS, "--pyflink", "-p", "1")
    assert (code, out.splitlines()) == (0, ["+I[A,1]", "+I[BC,2]"]), err


def test_without_the_option_there_is_no_pyflink(tmp_path: Path) -> None:
    code, _, err = run(tmp_path, WORDS)
    assert (code, err.count("\n")) == (1, 1)
    assert "imports pyflink, which is not installed here: run it with --pyflink" in err


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("table.expressions", "of PyFlink's Table API it has only datagen tables"),
        ("java_gateway", "there are no Java objects of Flink to reach"),
        ("spark", "docs/pyflink.md lists what is"),
        ("datastream.no_such", "docs/pyflink.md lists what is"),
        ("datastream.connectors.jdbc", "PostgresSink"),
        ("common.io", "use from_source()"),
    ],
)
def test_a_module_that_penstock_does_not_have_is_one_sentence(
    tmp_path: Path, module: str, said: str
) -> None:
    code, out, err = run(tmp_path, f"import pyflink.{module}\n", "--pyflink")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert f"Error: pyflink.{module.split('.')[0]}" in err
    assert said in err


@pytest.mark.parametrize("root", ["pyflink", "penstock"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "from {}.datastream.functions import SinkFunction\nSinkFunction()\n",
            "SinkFunction is not in penstock: ",
        ),
        ("from {}.datastream.connectors.jdbc import JdbcSink\n", "jdbc is not in penstock: "),
        (
            "import {}.datastream.connectors.kafka as k\nk.Semantic.NONE\n",
            "Semantic is not in penstock",
        ),
        (
            "from {}.datastream import *\nDataStream(0, ()).add_sink\n",
            "DataStream.add_sink is",
        ),
    ],
)
def test_a_name_that_penstock_does_not_have_is_one_sentence(
    tmp_path: Path, text: str, said: str, root: str
) -> None:
    options = ["--pyflink"] if root == "pyflink" else []
    code, out, err = run(tmp_path, text.format(root), *options)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("Error: ")
    assert said in err


def test_a_name_that_pyflink_does_not_have_keeps_its_traceback(tmp_path: Path) -> None:
    for text in ("import no_such_module\n", "from pyflink.datastream import NoSuchName\n"):
        code, _, err = run(tmp_path, text, "--pyflink")
        assert code == 1
        assert "Traceback" in err
        assert text.strip() in err


def test_small_modules_of_pyflink_exist() -> None:
    use_pyflink_names()
    assert importlib.import_module("pyflink.version").__version__ == penstock.__version__
    constants = importlib.import_module("pyflink.common.constants")
    assert (constants.MIN_LONG_VALUE, constants.MAX_LONG_VALUE) == (-(2**63), 2**63 - 1)


TABLE = """
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import DataTypes, Schema, StreamTableEnvironment, TableDescriptor
from penstock.testing.inline import run_inline

env = run_inline(StreamExecutionEnvironment.get_execution_environment())
t_env = StreamTableEnvironment.create(env)
schema = Schema.new_builder().column("n", DataTypes.BIGINT()).build()
generated = TableDescriptor.for_connector("datagen").schema(schema).option("number-of-rows", "2")
generated.option("fields.n.min", "7").option("fields.n.max", "7")
t_env.create_temporary_table("source", generated.build())
table = t_env.from_path("source")
"""


def test_a_table_of_generated_rows_is_a_source(tmp_path: Path) -> None:
    text = TABLE + "t_env.to_data_stream(table).print()\nenv.execute()\n"
    code, out, err = run(tmp_path, text, "--pyflink", "-p", "1")
    assert (code, out) == (0, "+I[7]\n+I[7]\n"), err


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from pyflink.table import EnvironmentSettings\n", "pyflink.table.EnvironmentSettings"),
        (TABLE + "table.execute().print()\n", "Table.execute"),
        (TABLE + "t_env.execute_sql('SELECT 1')\n", "StreamTableEnvironment.execute_sql"),
    ],
)
def test_the_rest_of_the_table_api_is_refused_in_one_sentence(
    tmp_path: Path, text: str, name: str
) -> None:
    code, _, err = run(tmp_path, text, "--pyflink")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith(f"Error: {name} is not in penstock: of PyFlink's Table API it has only")


def test_a_program_may_handle_a_missing_module(tmp_path: Path) -> None:
    text = "try:\n    import pyflink.testing\nexcept ImportError:\n    print('without')\n"
    assert run(tmp_path, text, "--pyflink") == (0, "without\n", "")


def test_a_module_is_the_same_under_both_names() -> None:
    use_pyflink_names()
    use_pyflink_names()
    assert sum(isinstance(one, PyFlinkImportAlias) for one in sys.meta_path) == 1
    ours = penstock.datastream.functions
    assert importlib.import_module("pyflink.datastream.functions") is ours
    assert ours.__spec__ is not None
    assert (ours.__name__, ours.__spec__.name) == ("penstock.datastream.functions",) * 2
    with pytest.raises(NoPyFlinkModuleError):
        importlib.import_module("pyflink.fn_execution")


def test_pickles_name_penstock_only() -> None:
    use_pyflink_names()
    module = importlib.import_module("pyflink.datastream.functions")
    data = cloudpickle.dumps((module, lambda: module.MapFunction, module.MapFunction))
    assert b"pyflink.datastream" not in data
    without_pyflink_names()
    assert pickle.loads(data)[1]() is module.MapFunction


def test_unpickling_the_alias_installs_it(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("from pyflink.common import Row\ndef f():\n    pass\n")
    make = "import pickle, sys\nfrom penstock.common.pyflink.import_alias import installed_alias, "
    make += "use_pyflink_names\nuse_pyflink_names()\nimport helper\n"
    make += "sys.stdout.buffer.write(pickle.dumps((installed_alias(), helper.f)))\n"
    data = python(tmp_path, make, b"")
    read = "import pickle, sys\nprint(pickle.loads(sys.stdin.buffer.read())[1].__module__)\n"
    assert python(tmp_path, read, data) == b"helper\n"


def test_without_the_alias_pickles_do_not_name_it() -> None:
    assert installed_alias() is None


def python(directory: Path, code: str, given: bytes) -> bytes:
    done = subprocess.run(
        [sys.executable, "-c", code], input=given, capture_output=True, check=True, cwd=directory
    )
    return done.stdout


def test_a_supervised_driver_gets_the_option_too() -> None:
    words = child_command(Path("job.py"), [], [], None, pyflink=True)
    assert words[4:] == ["--pyflink", "--", "job.py"]


def test_explain_accepts_a_program_that_imports_pyflink(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(WORDS)
    result = command("explain", "--pyflink", job, "a")
    assert result.exit_code == 0, result.output
    assert "job 'words'" in result.output
