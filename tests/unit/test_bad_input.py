"""Every mistake in a program gives one message that its author can act on."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.common import Configuration, Row, Types
from penstock.connectors.discarding_sink import DiscardingSink
from penstock.connectors.socket.ingestion_log import IngestionLog
from penstock.datastream import (
    DataStream,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.file_system import FileSource, StreamFormat
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.errors import (
    CorruptIngestionLogError,
    InvalidJobError,
    MissingPathError,
    PenstockError,
    RuntimeSetupError,
    StateDeclaredTwiceError,
    StepError,
    TypeMismatchError,
    UnknownOptionError,
    UnserializableFunctionError,
    UserFunctionError,
)
from penstock.spark.session import check_java, check_pyspark, java_version
from tests.unit.support import collected, environment

HERE = Path(__file__).name
PACKAGE = str(Path(penstock.__file__).parent)


def failure_of(build: Callable[[DataStream], Any], *records: Any) -> PenstockError:
    """What a program that reads some records fails of."""
    env = environment(2)
    build(env.from_collection(records or [("a", 1), ("b", 0)]))
    with pytest.raises(PenstockError) as caught:
        env.execute()
    assert PACKAGE not in str(caught.value)
    assert "py4j" not in str(caught.value)
    return caught.value


def text_of(build: Callable[[DataStream], Any], *records: Any) -> str:
    return str(failure_of(build, *records))


# A user function that raises


def divide(record: Any) -> Any:
    return 1 // record[1]


class Divides(
    MapFunction[Any, Any], FlatMapFunction[Any, Any], FilterFunction[Any], KeySelector[Any, Any]
):
    def map(self, value: Any) -> Any:
        return divide(value)

    def flat_map(self, value: Any) -> Any:
        yield divide(value)

    def filter(self, value: Any) -> bool:
        return bool(divide(value))

    def get_key(self, value: Any) -> Any:
        return divide(value)


class DividesInProcess(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield divide(value)


class DividesByKey(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield divide(value)


class DividesInReduce(ReduceFunction[Any]):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return divide(value2)


def by_name(stream: DataStream) -> Any:
    return stream.key_by(lambda r: r[0])


STEPS: dict[str, Callable[[DataStream], DataStream]] = {
    "map": lambda s: s.map(divide),
    "map function": lambda s: s.map(Divides()),
    "flat_map": lambda s: s.flat_map(lambda r: [divide(r)]),
    "flat_map function": lambda s: s.flat_map(Divides()),
    "filter": lambda s: s.filter(divide),
    "filter function": lambda s: s.filter(Divides()),
    "process": lambda s: s.process(DividesInProcess()),
    "keyed map": lambda s: by_name(s).map(divide),
    "keyed flat_map": lambda s: by_name(s).flat_map(Divides()),
    "keyed filter": lambda s: by_name(s).filter(divide),
    "keyed process": lambda s: by_name(s).process(DividesByKey()),
}


@pytest.mark.parametrize("step", STEPS)
def test_an_error_of_a_function_names_step_record_and_its_own_lines(step: str) -> None:
    error = failure_of(lambda s: STEPS[step](s).name("ratio").sink_to(DiscardingSink()))
    assert isinstance(error, UserFunctionError)
    first, *rest = str(error).splitlines()
    assert first.startswith("step 'ratio' failed on record ('b', 0): ZeroDivisionError: ")
    assert "return 1 // record[1]" in str(error)
    files = {line.split('"')[1] for line in rest if line.startswith("  File ")}
    assert {Path(file).name for file in files} == {HERE}


@pytest.mark.parametrize("selector", [divide, Divides()], ids=["function", "KeySelector"])
def test_a_key_selector_that_raises_is_shown_with_its_record(selector: Any) -> None:
    text = text_of(lambda s: s.key_by(selector).reduce(max).print())
    assert text.startswith("step 'key_by' failed on record ('b', 0): ZeroDivisionError: ")
    assert "return 1 // record[1]" in text


@pytest.mark.parametrize("mode", list(RuntimeExecutionMode))
def test_a_reduce_that_raises_is_shown_with_its_record(mode: RuntimeExecutionMode) -> None:
    env = environment().set_runtime_mode(mode)
    pairs = env.from_collection([("a", 1), ("a", 0)])
    by_name(pairs).reduce(DividesInReduce()).name("ratio").print()
    with pytest.raises(UserFunctionError) as caught:
        env.execute()
    assert str(caught.value).startswith("step 'ratio' failed on record ('a', 0): ZeroDivision")


class FailsOutside(MapFunction[Any, Any], KeySelector[Any, Any]):
    def __init__(self, where: str) -> None:
        self.where = where

    def open(self, runtime_context: RuntimeContext) -> None:
        self.fail_in("open")

    def close(self) -> None:
        self.fail_in("close")

    def fail_in(self, where: str) -> None:
        if where == self.where:
            message = "no connection"
            raise OSError(message)

    def map(self, value: Any) -> Any:
        return value

    def get_key(self, value: Any) -> Any:
        return value


@pytest.mark.parametrize("where", ["open", "close"])
def test_a_function_that_fails_to_open_or_close_is_shown_with_its_step(where: str) -> None:
    text = text_of(lambda s: s.map(FailsOutside(where)).name("lookup").print())
    assert text.startswith(f"step 'lookup' failed in {where}(): OSError: no connection\n")
    assert "raise OSError(message)" in text
    text = text_of(lambda s: s.key_by(FailsOutside(where)).reduce(max).print())
    assert text.startswith(f"step 'key_by' failed in {where}(): OSError: no connection\n")


def test_the_causes_of_an_error_are_shown_too() -> None:
    def wrapped(record: Any) -> Any:
        try:
            return divide(record)
        except ZeroDivisionError as error:
            message = "bad record"
            raise ValueError(message) from error

    text = text_of(lambda s: s.map(wrapped).print())
    assert "ValueError: bad record" in text.splitlines()[0]
    assert "The above exception was the direct cause" in text
    assert "ZeroDivisionError" in text


class Unprintable:
    def __repr__(self) -> str:
        message = "no text"
        raise RuntimeError(message)


def test_a_record_that_cannot_be_shown_does_not_hide_the_error() -> None:
    text = text_of(lambda s: s.map(lambda r: Unprintable()).map(divide).name("x").print())
    assert text.startswith("step 'x' failed on record <Unprintable whose repr raises")


# A value that does not match its declared type

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
WRONG_TYPE = "field 'f1' does not match its declared type Integer; got 'x'"


def add_fields(pair: Any) -> Any:
    return pair[0] + pair[1] if pair[1] != "x" else pair[0] + 1


def misfit(_: Any) -> Any:
    return ("a", "x")


ENDS: dict[str, Callable[[DataStream], Any]] = {
    "an exchange": lambda s: s.rebalance().map(str).print(),
    "a key": lambda s: by_name(s).reduce(max).print(),
    "print": lambda s: s.print(),
    "a chain before print": lambda s: s.filter(bool).print(),
    "a filter before an exchange": lambda s: s.filter(bool).rebalance().map(str).print(),
    "a function after it": lambda s: s.map(add_fields).print(),
    "a second branch": lambda s: (s.sink_to(DiscardingSink()), s.print()),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_value_of_the_wrong_type_is_refused_at(end: str) -> None:
    error = failure_of(lambda s: ENDS[end](s.map(misfit, PAIR).name("parse")))
    assert isinstance(error, StepError)
    assert str(error).startswith(f"step 'parse' stopped on record ('a', 'x'): {WRONG_TYPE}")
    line = test_a_value_of_the_wrong_type_is_refused_at.__code__.co_firstlineno + 2
    assert str(error).endswith(f"; the step is at {__file__}:{line}")


def test_a_function_that_fails_on_a_value_of_the_wrong_type_is_named_after_its_cause() -> None:
    text = text_of(lambda s: s.map(misfit, PAIR).filter(bool).map(add_fields).name("add").print())
    assert "step 'add' failed on it: TypeError: can only concatenate str" in text


def test_a_function_that_fails_on_a_value_of_the_right_type_is_to_blame() -> None:
    text = text_of(lambda s: s.map(lambda r: r, PAIR).map(add_fields).name("add").print(), ("a", 1))
    assert text.startswith("step 'add' failed on record ('a', 1): TypeError")


def test_an_outage_is_no_matter_of_types() -> None:
    def call_service(_: Any) -> Any:
        raise ConnectionRefusedError

    error = failure_of(lambda s: s.map(misfit, PAIR).map(call_service).name("call").print())
    assert str(error).startswith("step 'call' failed on record ('a', 'x'): ConnectionRefusedError")
    assert not error.is_permanent


def test_a_collected_value_must_match_its_type() -> None:
    env = environment()
    with pytest.raises(StepError) as caught:
        collected(env.from_collection([0]).map(misfit, PAIR))
    assert WRONG_TYPE in str(caught.value)


def test_an_element_of_a_collection_must_match_its_type() -> None:
    with pytest.raises(TypeMismatchError) as caught:
        environment().from_collection([("a", 1), misfit(0)], PAIR)
    assert "field '[1].f1' does not match its declared type Integer; got 'x'" in str(caught.value)


def test_a_discarding_sink_does_not_check_its_values() -> None:
    env = environment()
    env.from_collection([0]).map(misfit, PAIR).sink_to(DiscardingSink())
    env.execute()


class Updates(KeyedProcessFunction[Any, Any, Any]):
    def __init__(self, value: Any) -> None:
        self.new = value

    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("amount", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.state.update(self.new)


@pytest.mark.parametrize("value", ["x", 2**40, 1.5])
def test_a_state_value_of_the_wrong_type_is_named_with_state_and_key(value: Any) -> None:
    def store(stream: DataStream) -> None:
        by_name(stream).process(Updates(value)).name("sum").print()

    text = text_of(store, ("a", 1))
    line = Updates.process_element.__code__.co_firstlineno + 1
    if isinstance(value, int):
        # Its size is checked after the last record, so the line is that of the step.
        line = store.__code__.co_firstlineno + 1
    assert text == (
        "step 'sum', state 'amount', key 'a' does not match its declared type Integer; got "
        f"{value!r}; it was stored at {__file__}:{line}"
    )


def test_a_key_of_the_wrong_type_is_named() -> None:
    text = text_of(lambda s: s.key_by(lambda r: r[0], Types.INT()).reduce(max).print())
    assert text.startswith("step 'key_by' stopped on record ('a', 1): ")
    assert "does not match its declared type Integer; got 'a'" in text


def test_a_row_with_other_names_than_its_type_is_refused() -> None:
    named = Types.ROW_NAMED(["name"], [Types.STRING()])
    text = text_of(lambda s: s.map(lambda r: Row(title="x"), named).rebalance().print())
    assert "the record does not match its declared type" in text
    assert "got Row(title='x')" in text


# State and keys


class DeclaresTwice(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_state(ValueStateDescriptor("amount", Types.INT()))
        runtime_context.get_state(ValueStateDescriptor("amount", Types.STRING()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        return []


class DeclaresAnother(DeclaresTwice):
    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_state(ValueStateDescriptor("amount", Types.INT()))
        runtime_context.get_list_state(ListStateDescriptor("amount", Types.INT()))


@pytest.mark.parametrize("function", [DeclaresTwice(), DeclaresAnother()])
def test_a_state_declared_twice_is_named_with_both_types(function: Any) -> None:
    error = failure_of(lambda s: by_name(s).process(function).name("sum").print())
    assert isinstance(error, StateDeclaredTwiceError)
    assert str(error).startswith("step 'sum': state 'amount' was declared as ")
    assert "give one of the two another name" in str(error)


class Keyless(MapFunction[Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_state(ValueStateDescriptor("amount", Types.INT()))

    def map(self, value: Any) -> Any:
        return value


def test_keyed_state_without_a_key_is_refused() -> None:
    text = text_of(lambda s: s.map(Keyless()).name("sum").print())
    assert "asks for keyed state but its stream has no key; put key_by() before it" in text


class Point:
    def __repr__(self) -> str:
        return "Point()"


def test_a_key_class_without_a_stable_encoding_is_refused() -> None:
    text = text_of(lambda s: s.key_by(lambda r: Point()).reduce(max).print())
    assert text.startswith("step 'key_by': a key must be a str, int, ")
    assert f"got Point() of class {Point.__module__}.Point" in text


# What is refused before anything runs


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere")
    with pytest.raises(MissingPathError) as caught:
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), missing)
    assert str(caught.value) == (
        f"path {missing!r} does not exist; create it, or correct the path of the source"
    )


def test_an_unknown_configuration_key_is_named_with_the_nearest() -> None:
    configuration = Configuration()
    configuration.set_string("penstock.micro-batch.max-record", "1")
    with pytest.raises(UnknownOptionError) as caught:
        StreamExecutionEnvironment.get_execution_environment(configuration)
    assert str(caught.value) == (
        "unknown configuration key 'penstock.micro-batch.max-record'; "
        "did you mean 'penstock.micro-batch.max-records'?"
    )


GLOBAL_LOCK = threading.Lock()


def unserializable(build: Callable[[DataStream], Any]) -> str:
    error = failure_of(build)
    assert isinstance(error, UnserializableFunctionError)
    return str(error)


def test_a_captured_global_that_cannot_be_pickled_is_named() -> None:
    text = unserializable(lambda s: s.map(lambda r: (GLOBAL_LOCK, r)).name("locked").print())
    assert text.startswith("step 'locked' cannot be sent to the tasks: it captures ")
    assert "'GLOBAL_LOCK' = <unlocked _thread.lock" in text
    assert "cannot pickle '_thread.lock' object" in text
    assert text.endswith("create it in open() instead")


def test_a_captured_local_that_cannot_be_pickled_is_named() -> None:
    mine = {"inner": threading.Lock()}
    text = unserializable(lambda s: s.filter(lambda r: bool(mine)).print())
    assert "step 'Filter'" in text
    assert "'inner' = <unlocked _thread.lock" in text


def test_a_field_that_cannot_be_pickled_is_named() -> None:
    function = FailsOutside("nowhere")
    function.__dict__["guard"] = threading.Lock()
    text = unserializable(lambda s: s.map(function).print())
    assert "'guard' = <unlocked _thread.lock" in text


def test_a_global_used_by_a_method_that_cannot_be_pickled_is_named() -> None:
    class Locked(MapFunction[Any, Any]):
        def map(self, value: Any) -> Any:
            return GLOBAL_LOCK, value

    text = unserializable(lambda s: s.map(Locked()).print())
    assert "'GLOBAL_LOCK' = <unlocked _thread.lock" in text


def test_a_key_selector_that_cannot_be_pickled_is_named() -> None:
    mine = threading.Lock()
    text = unserializable(lambda s: s.key_by(lambda r: (mine, r)).reduce(max).print())
    assert "step 'key_by'" in text
    assert "'mine' = <unlocked _thread.lock" in text


def test_a_record_that_cannot_be_pickled_is_named_with_its_step() -> None:
    text = text_of(lambda s: s.map(lambda r: (x for x in [r])).name("lazy").rebalance().print())
    assert text.startswith("step 'lazy' stopped on record <generator object")
    assert "it cannot be pickled" in text


def test_a_program_without_a_sink_is_refused() -> None:
    env = environment()
    env.from_collection([1]).map(str)
    with pytest.raises(InvalidJobError, match=r"no sink: end a stream with print\(\)"):
        env.execute()


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda s: s.map("no function"), "map() needs a MapFunction or a callable"),
        (lambda s: s.process(DividesByKey()), "without keys needs a ProcessFunction"),
        (lambda s: by_name(s).process(DividesInProcess()), "needs a KeyedProcessFunction"),
        (lambda s: by_name(s).rebalance(), "a keyed stream is partitioned by its key"),
        (lambda s: by_name(s).name("x"), "key_by() is not a step"),
        (lambda s: s.union(s).name("x"), "a union is not a step"),
        (lambda s: s.sink_to(print), "sink_to() needs a Sink"),
        (lambda s: s.set_parallelism(0), "parallelism must be a whole number of at least 1; got 0"),
    ],
)
def test_a_wrongly_built_step_is_refused_where_it_is_written(
    build: Callable[[DataStream], Any], text: str
) -> None:
    with pytest.raises(InvalidJobError) as caught:
        build(environment().from_collection([1]))
    assert text in str(caught.value)


def test_a_corrupt_ingestion_log_is_refused_and_kept(tmp_path: Path) -> None:
    env = environment(1, penstock__ingestion__dir=str(tmp_path))
    env.socket_text_stream("localhost", 9).uid("lines").print()
    log = IngestionLog(tmp_path / "lines" / "ingestion-log")
    for _ in range(3):
        log.append([b"a line"])
    log.close()
    (segment,) = log.directory.glob("*.segment")
    damaged = bytearray(segment.read_bytes())
    damaged[len(damaged) // 3] ^= 1
    segment.write_bytes(damaged)
    with pytest.raises(CorruptIngestionLogError) as caught:
        env.execute()
    assert str(segment) in str(caught.value)
    assert segment.read_bytes() == damaged


# What penstock runs on


def fake_java(directory: Path, version: str) -> None:
    java = directory / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)


def test_a_java_that_is_too_old_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RuntimeSetupError) as caught:
        check_java()
    assert str(caught.value).startswith(
        f"Spark needs Java 17 or newer, and {tmp_path}/bin/java is Java 11: install a JDK"
    )


def test_a_recent_java_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check_java()


@pytest.mark.parametrize("home", [None, "/nowhere"])
def test_a_missing_java_is_reported_with_what_to_install(
    home: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", home)
    where = "JAVA_HOME is '/nowhere' but has no bin/java" if home else "`java` is not on PATH"
    with pytest.raises(RuntimeSetupError) as caught:
        check_java()
    assert where in str(caught.value)
    assert "install a JDK" in str(caught.value)


def test_both_formats_of_java_versions_are_parsed() -> None:
    assert java_version('java version "1.8.0_292"') == 8
    assert java_version('openjdk version "17" 2021-09-14') == 17
    assert java_version("something else") is None


@pytest.mark.parametrize("version", ["4.2.1", "3.5.0", "4.30.0", "5.0.0"])
def test_another_pyspark_is_refused_with_what_to_install(version: str) -> None:
    with pytest.raises(RuntimeSetupError) as caught:
        check_pyspark(version)
    assert str(caught.value) == (
        f"penstock runs on pyspark 4.3, this is pyspark {version}: pip install 'pyspark==4.3.*'"
    )
    check_pyspark("4.3.7")


def test_building_a_program_needs_no_spark() -> None:
    program = (
        "import sys, penstock.datastream, penstock.cli.main, penstock.testing.inline;"
        "print([m for m in sys.modules if m.split('.')[0] in ('pyspark', 'py4j')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
