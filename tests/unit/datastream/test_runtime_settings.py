"""Settings of an environment: those that act, those that are only kept, those that are refused."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock.common import Configuration, ExecutionConfig
from penstock.datastream import (
    MapFunction,
    MemorySize,
    RuntimeContext,
    SlotSharingGroup,
    StreamExecutionEnvironment,
)
from penstock.errors import InvalidJobError, NoPyFlinkNameError, OptionValueError
from penstock.graph.render import render_json
from tests.unit.support import collected, environment, plan_of


def test_the_config_and_the_environment_are_one() -> None:
    env = environment()
    config = env.get_config()
    assert env.from_collection([1]).get_execution_config() == config
    config.set_parallelism(5).set_max_parallelism(64)
    assert (env.get_parallelism(), env.get_max_parallelism()) == (5, 64)
    env.set_parallelism(3)
    assert config.get_parallelism() == 3
    config.set_parallelism(ExecutionConfig.PARALLELISM_DEFAULT)
    env.set_default_local_parallelism(7)
    assert (env.get_parallelism(), config.get_parallelism()) == (7, -1)
    with pytest.raises(OptionValueError):
        config.set_parallelism(0)


def test_what_is_configured_later_wins() -> None:
    env = environment().set_parallelism(2)
    env.configure(Configuration().set_integer("parallelism.default", 4))
    assert env.get_parallelism() == 4


class Greeting(MapFunction[int, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.text = runtime_context.get_job_parameter("greeting", "none")
        self.count = runtime_context.get_job_parameter("count", "none")

    def map(self, value: int) -> str:
        return f"{self.text} {self.count}"


def test_functions_find_the_parameters_of_the_job() -> None:
    env = environment()
    env.get_config().set_global_job_parameters({"greeting": "hello", "count": 3})
    assert env.get_config().get_global_job_parameters() == {"greeting": "hello", "count": "3"}
    assert collected(env.from_collection([1]).map(Greeting())) == ["hello 3"]


def test_parameters_may_come_from_a_configuration_file() -> None:
    env = environment(pipeline__global_job_parameters="greeting:hi, count:4")
    assert collected(env.from_collection([1]).map(Greeting())) == ["hi 4"]


def test_a_job_that_wants_uids_refuses_a_step_without_one() -> None:
    env = environment()
    env.get_config().disable_auto_generated_uids()
    assert not env.get_config().has_auto_generated_uids_enabled()
    env.from_collection([1]).uid("source").map(str).print().uid("sink")
    with pytest.raises(InvalidJobError, match=r"step 'Map' at .* has no uid"):
        plan_of(env)
    env.get_config().enable_auto_generated_uids()
    env.from_collection([1]).print()
    plan_of(env)


def test_chaining_may_be_switched_off_by_its_key() -> None:
    env = environment(pipeline__operator_chaining__enabled="false")
    assert not env.is_chaining_enabled()
    env.from_collection([1]).map(str).print()
    assert len(plan_of(env).stages) == 3
    assert not environment().disable_operator_chaining().is_chaining_enabled()
    assert environment().is_chaining_of_operators_with_different_max_parallelism_enabled()


KEPT = {
    "latency_tracking_interval": 8,
    "task_cancellation_interval": 9,
    "task_cancellation_timeout": 10,
}


def test_the_time_between_watermarks_is_a_setting() -> None:
    config = environment().get_config()
    assert config.get_auto_watermark_interval() == 200
    assert config.set_auto_watermark_interval(7).get_auto_watermark_interval() == 7


@pytest.mark.parametrize("name", KEPT)
def test_times_that_mean_nothing_here_are_kept(name: str) -> None:
    config = environment().get_config()
    getattr(config, f"set_{name}")(KEPT[name])
    assert getattr(config, f"get_{name}")() == KEPT[name]


@pytest.mark.parametrize(
    ("switch", "told"),
    [
        ("closure_cleaner", "is_closure_cleaner_enabled"),
        ("force_kryo", "is_force_kryo_enabled"),
        ("force_avro", "is_force_avro_enabled"),
        ("object_reuse", "is_object_reuse_enabled"),
    ],
)
def test_switches_that_mean_nothing_here_are_kept(switch: str, told: str) -> None:
    config = environment().get_config()
    getattr(config, f"enable_{switch}")()
    assert getattr(config, told)() is True
    getattr(config, f"disable_{switch}")()
    assert getattr(config, told)() is False


def test_other_knobs_of_flinks_runtime_are_kept() -> None:
    env = environment()
    config = env.get_config().disable_generic_types().set_use_snapshot_compression(True)
    assert (config.has_generic_types_disabled(), config.is_use_snapshot_compression()) == (1, 1)
    assert not config.enable_generic_types().has_generic_types_disabled()
    assert config.get_registered_kryo_types() == config.get_registered_pojo_types() == []
    assert config.get_default_kryo_serializer_classes() == {}
    assert env.get_buffer_timeout() == 100
    assert env.set_buffer_timeout(5).get_buffer_timeout() == 5
    assert env.is_changelog_state_backend_enabled() is None
    assert env.enable_changelog_state_backend(True).is_changelog_state_backend_enabled() is True


def test_jars_for_flink_are_accepted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        environment().add_jars("file:///flink-connector.jar")
        environment().add_classpaths("file:///classes")
    assert "pipeline.jars" in caplog.text
    assert "pipeline.classpaths" in caplog.text


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("add_source", "use from_source"),
        ("set_python_requirements", "install them where the workers run"),
        ("add_python_archive", "spark.archives"),
        ("set_python_executable", "PYSPARK_PYTHON"),
        ("register_cached_file", "spark.files"),
    ],
)
def test_what_cannot_be_done_says_what_to_do_instead(method: str, said: str) -> None:
    with pytest.raises(AttributeError, match=said):
        getattr(environment(), method)


def test_a_sink_function_says_what_to_do_instead() -> None:
    with pytest.raises(AttributeError, match="use sink_to"):
        environment().from_collection([1]).add_sink  # type: ignore[attr-defined]  # noqa: B018
    from penstock.datastream import SourceFunction  # type: ignore[attr-defined]

    with pytest.raises(NoPyFlinkNameError, match="wraps a Java source; use from_source"):
        SourceFunction("org.example.Source")


def test_python_files_are_kept_by_their_full_paths(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    env = environment()
    env.add_python_file("lib.py")
    env.add_python_file("hdfs://there/lib.zip")
    kept = env._configuration.get("python.files")
    assert kept == [str(tmp_path / "lib.py"), "hdfs://there/lib.zip"]


def test_resources_are_described_and_change_nothing() -> None:
    group = (
        SlotSharingGroup.builder("big")
        .set_cpu_cores(2)
        .set_task_heap_memory_mb(100)
        .set_task_off_heap_memory_mb(200)
        .set_managed_memory(MemorySize(bytes_size=1 << 30))
        .set_external_resource("gpu", 1.0)
        .build()
    )
    assert group.get_name() == "big"
    assert (group.get_cpu_cores(), group.get_external_resources()) == (2.0, {"gpu": 1.0})
    heap, off_heap = group.get_task_heap_memory(), group.get_task_off_heap_memory()
    assert (heap, off_heap) == (MemorySize.of_mebi_bytes(100), MemorySize(200 << 20))
    assert group.get_managed_memory() > heap  # type: ignore[operator]
    assert hash(group) == hash(SlotSharingGroup("big", 2.0, heap, off_heap, MemorySize(1 << 30)))
    env = environment().register_slot_sharing_group(group)
    assert isinstance(env, StreamExecutionEnvironment)
    stream = env.from_collection([1]).slot_sharing_group(group).slot_sharing_group("other")
    assert collected(stream) == [1]
    with pytest.raises(InvalidJobError, match="needs a SlotSharingGroup"):
        env.register_slot_sharing_group("big")  # type: ignore[arg-type]


def test_resources_without_cores_or_heap_are_rejected_as_in_flink() -> None:
    with pytest.raises(InvalidJobError, match=r"set_cpu_cores\(\) and set_task_heap_memory\(\)"):
        SlotSharingGroup.builder("half").set_cpu_cores(1).build()
    with pytest.raises(InvalidJobError, match=r"set_cpu_cores\(\) and set_task_heap_memory\(\)"):
        SlotSharingGroup.builder("half").set_managed_memory(MemorySize(0)).build()
    with pytest.raises(InvalidJobError, match="cores of a slot sharing group must be above 0"):
        SlotSharingGroup.builder("none").set_cpu_cores(0)
    with pytest.raises(InvalidJobError, match="heap memory of a slot sharing group must be above"):
        SlotSharingGroup.builder("none").set_cpu_cores(1).set_task_heap_memory(MemorySize(0))
    with pytest.raises(InvalidJobError, match="heap memory of a slot sharing group must be above"):
        SlotSharingGroup.builder("none").set_task_heap_memory_mb(0)
    SlotSharingGroup.builder("none").build()


def test_a_memory_size_is_seen_in_every_unit() -> None:
    size = MemorySize(bytes_size=(3 << 40) + 5)
    assert (size.get_bytes(), size.get_tebi_bytes(), size.get_gibi_bytes()) == (
        (3 << 40) + 5,
        3,
        3 << 10,
    )
    assert (size.get_mebi_bytes(), size.get_kibi_bytes()) == (3 << 20, 3 << 30)
    assert str(MemorySize.of_mebi_bytes(2)) == "2 mb"
    with pytest.raises(InvalidJobError, match="whole number of bytes"):
        MemorySize(-1)


def test_a_description_is_in_the_plan() -> None:
    env = environment()
    env.from_collection([1]).set_description("one number").print()
    (stage,) = render_json(plan_of(env))["stages"]
    assert stage["operators"][0]["description"] == "one number"
