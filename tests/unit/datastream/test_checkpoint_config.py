"""PyFlink's checkpointing API: names for configuration keys, and nothing beside them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock.checkpoint.settings import StorageKind, read_checkpoint_settings
from penstock.common import Configuration, Duration, RestartStrategies, RestartStrategyConfiguration
from penstock.datastream import (
    CheckpointConfig,
    CheckpointingMode,
    CheckpointStorage,
    EmbeddedRocksDBStateBackend,
    ExternalizedCheckpointRetention,
    FileSystemCheckpointStorage,
    HashMapStateBackend,
    JobManagerCheckpointStorage,
    PredefinedOptions,
    StateBackend,
    StreamExecutionEnvironment,
)
from penstock.errors import ConfigurationError, OptionValueError
from penstock.recovery.restart_strategy import (
    FailureRate,
    FixedDelay,
    NoRestart,
    read_restart_strategy,
)


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


def test_checkpoints_are_off_by_default(env: StreamExecutionEnvironment) -> None:
    assert env.get_checkpoint_interval() == -1
    assert env.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
    assert not env.get_checkpoint_config().is_checkpointing_enabled()
    assert env.get_default_savepoint_directory() is None
    assert env.get_checkpoint_config().get_checkpoint_storage() is None


def test_enabling_sets_the_interval_and_the_mode_only_if_given(
    env: StreamExecutionEnvironment,
) -> None:
    assert env.enable_checkpointing(3000, CheckpointingMode.AT_LEAST_ONCE) is env
    env.enable_checkpointing(5000)
    assert env.get_checkpoint_interval() == 5000
    assert env.get_checkpointing_consistency_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert env.get_checkpoint_config().is_checkpointing_enabled()


def test_a_number_of_records_enables_checkpoints_too() -> None:
    config = CheckpointConfig(Configuration().set_integer("penstock.checkpoint.records", 9))
    assert config.is_checkpointing_enabled()
    assert config.get_checkpoint_interval() == -1


NUMBERS: list[tuple[str, str, int, str]] = [
    ("checkpoint_interval", "interval", 20_000, "20000 ms"),
    ("checkpoint_timeout", "timeout", 30_000, "30000 ms"),
    ("min_pause_between_checkpoints", "min-pause", 500, "500 ms"),
    ("max_concurrent_checkpoints", "max-concurrent-checkpoints", 2, "2"),
    ("tolerable_checkpoint_failure_number", "tolerable-failed-checkpoints", 3, "3"),
]


@pytest.mark.parametrize(("name", "key", "value", "text"), NUMBERS)
def test_setters_write_the_configuration_and_getters_read_it(
    name: str, key: str, value: int, text: str
) -> None:
    configuration = Configuration()
    config = CheckpointConfig(configuration)
    assert getattr(config, f"set_{name}")(value) is config
    assert configuration.to_dict() == {f"execution.checkpointing.{key}": text}
    assert getattr(config, f"get_{name}")() == value
    configuration.set(f"execution.checkpointing.{key}", text.replace(str(value), "77"))
    assert getattr(config, f"get_{name}")() == 77


@pytest.mark.parametrize(
    "wrong",
    [
        lambda config: config.set_checkpoint_interval(9),
        lambda config: config.set_checkpoint_interval(-1),
        lambda config: config.set_checkpoint_timeout(0),
        lambda config: config.set_min_pause_between_checkpoints(-5),
        lambda config: config.set_max_concurrent_checkpoints(0),
        lambda config: config.set_tolerable_checkpoint_failure_number(-1),
        lambda config: config.set_checkpoint_storage_dir("ftp://host/checkpoints"),
    ],
)
def test_a_wrong_value_is_rejected_at_once_and_changes_nothing(
    wrong: Callable[[CheckpointConfig], object],
) -> None:
    configuration = Configuration()
    with pytest.raises(OptionValueError):
        wrong(CheckpointConfig(configuration))
    assert configuration == Configuration()


def test_a_later_setting_overrides_under_any_key_name(env: StreamExecutionEnvironment) -> None:
    config = env.get_checkpoint_config()
    env.configure(Configuration().set_string("state.checkpoints.dir", "/old"))
    config.set_checkpoint_storage_dir("/new")
    env.configure(Configuration().set_string("state.checkpoints.dir", "/newest"))
    storage = config.get_checkpoint_storage()
    assert isinstance(storage, FileSystemCheckpointStorage)
    assert storage.get_checkpoint_path() == "/newest"


@pytest.mark.parametrize("mode", CheckpointingMode)
def test_all_modes_can_be_chosen(mode: CheckpointingMode) -> None:
    configuration = Configuration()
    config = CheckpointConfig(configuration).set_checkpointing_mode(mode)
    assert config.get_checkpointing_mode() is mode
    assert read_checkpoint_settings(configuration).mode.name == mode.name


@pytest.mark.parametrize("retention", ExternalizedCheckpointRetention)
def test_all_retentions_can_be_chosen(retention: ExternalizedCheckpointRetention) -> None:
    configuration = Configuration().set_string("execution.checkpointing.dir", "/c")
    config = CheckpointConfig(configuration).set_externalized_checkpoint_retention(retention)
    assert config.get_externalized_checkpoint_retention() is retention
    assert read_checkpoint_settings(configuration).retention.value == retention.name
    none = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
    assert config.is_externalized_checkpoints_enabled() is (retention is not none)


def test_failing_on_errors_is_about_the_tolerable_number() -> None:
    config = CheckpointConfig(Configuration())
    assert config.is_fail_on_checkpointing_errors()
    assert not config.set_fail_on_checkpointing_errors(False).is_fail_on_checkpointing_errors()
    assert config.get_tolerable_checkpoint_failure_number() == 2**31 - 1
    assert config.set_fail_on_checkpointing_errors(True).is_fail_on_checkpointing_errors()


def test_unaligned_checkpoints_are_turned_on_and_off(env: StreamExecutionEnvironment) -> None:
    config = env.enable_checkpointing(1000).get_checkpoint_config()
    assert not env.is_unaligned_checkpoints_enabled()
    assert config.enable_unaligned_checkpoints() is config
    assert config.is_unaligned_checkpoints_enabled()
    assert env.is_unaligned_checkpoints_enabled()
    assert config.disable_unaligned_checkpoints() is config
    assert not env.is_unaligned_checkpoints_enabled()
    env.configure(Configuration().set_boolean("execution.checkpointing.unaligned", True))
    assert env.is_unaligned_checkpoints_enabled()
    assert not config.enable_unaligned_checkpoints(False).is_unaligned_checkpoints_enabled()


def test_unaligned_checkpoints_are_not_enabled_without_exactly_once_or_without_checkpoints(
    env: StreamExecutionEnvironment,
) -> None:
    config = env.get_checkpoint_config().enable_unaligned_checkpoints()
    assert not env.is_unaligned_checkpoints_enabled()
    env.enable_checkpointing(1000)
    assert env.is_unaligned_checkpoints_enabled()
    config.set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
    assert not env.is_unaligned_checkpoints_enabled()


def test_forcing_unaligned_checkpoints_is_kept_and_turns_nothing_on(
    env: StreamExecutionEnvironment,
) -> None:
    config = env.enable_checkpointing(1000).get_checkpoint_config()
    assert not env.is_force_unaligned_checkpoints()
    assert config.set_force_unaligned_checkpoints() is config
    assert env.is_force_unaligned_checkpoints()
    assert not env.is_unaligned_checkpoints_enabled()
    assert not config.set_force_unaligned_checkpoints(False).is_force_unaligned_checkpoints()


def test_the_alignment_timeout_is_read_and_set_by_both_of_its_names() -> None:
    configuration = Configuration()
    config = CheckpointConfig(configuration)
    assert config.get_alignment_timeout() == Duration.of_millis(0)
    config.set_alignment_timeout(Duration.of_seconds(3))
    assert config.get_aligned_checkpoint_timeout() == Duration.of_millis(3000)
    config.set_aligned_checkpoint_timeout(Duration.of_millis(1500))
    assert config.get_alignment_timeout() == Duration.of_millis(1500)
    assert read_checkpoint_settings(configuration).aligned_timeout_s == 1.5


@pytest.mark.parametrize(
    ("storage", "kind", "path"),
    [
        (JobManagerCheckpointStorage(), StorageKind.JOBMANAGER, None),
        (JobManagerCheckpointStorage("/c"), StorageKind.JOBMANAGER, "/c"),
        (FileSystemCheckpointStorage("file:///c"), StorageKind.FILESYSTEM, "/c"),
    ],
)
def test_a_storage_is_a_kind_and_a_directory(
    env: StreamExecutionEnvironment, storage: CheckpointStorage, kind: StorageKind, path: str | None
) -> None:
    config = env.get_checkpoint_config().set_checkpoint_storage(storage)
    given = Configuration()
    given.add_all(storage.to_configuration())
    settings = read_checkpoint_settings(given)
    assert (settings.storage, settings.directory and str(settings.directory)) == (kind, path)
    assert type(config.get_checkpoint_storage()) is type(storage)


def test_a_storage_of_files_needs_a_path() -> None:
    with pytest.raises(ValueError, match="needs a checkpoint_path"):
        FileSystemCheckpointStorage()


def test_the_directory_of_savepoints_is_a_key(env: StreamExecutionEnvironment) -> None:
    assert env.set_default_savepoint_directory("file:///s") is env
    assert env.get_default_savepoint_directory() == "/s"


@pytest.mark.parametrize(
    ("backend", "pairs"),
    [
        (HashMapStateBackend(), {"state.backend.type": "hashmap"}),
        (EmbeddedRocksDBStateBackend(), {"state.backend.type": "rocksdb"}),
        (
            EmbeddedRocksDBStateBackend(True),
            {"state.backend.type": "rocksdb", "execution.checkpointing.incremental": "true"},
        ),
    ],
)
def test_a_state_backend_is_its_keys(
    env: StreamExecutionEnvironment, backend: StateBackend, pairs: dict[str, str]
) -> None:
    assert backend.to_configuration().to_dict() == pairs
    found = env.set_state_backend(backend).get_state_backend()
    assert found is not None
    assert str(found) == str(backend)


def test_the_memory_backend_has_no_class(env: StreamExecutionEnvironment) -> None:
    env.configure(Configuration().set_string("state.backend.type", "memory"))
    assert env.get_state_backend() is None


def test_rocksdb_keeps_its_files_in_one_directory() -> None:
    backend = EmbeddedRocksDBStateBackend()
    backend.set_db_storage_paths("/disk1")
    assert backend.get_db_storage_paths() == ["/disk1"]
    assert backend.to_configuration().get("penstock.state.local-dir") == "/disk1"
    with pytest.raises(ConfigurationError, match="got 2 paths"):
        backend.set_db_storage_paths("/disk1", "/disk2")
    backend.set_db_storage_paths()
    assert backend.get_db_storage_paths() == []
    with pytest.raises(TypeError, match="True, False or None"):
        EmbeddedRocksDBStateBackend("yes")  # type: ignore[arg-type]


def test_what_tunes_flinks_rocksdb_is_kept_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend = EmbeddedRocksDBStateBackend()
    assert backend.get_predefined_options() is PredefinedOptions.DEFAULT
    assert backend.get_options() is None
    assert backend.get_number_of_transfer_threads() == 4
    before = backend.to_configuration().to_dict()
    with caplog.at_level(logging.WARNING):
        backend.set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED)
        backend.set_options("org.example.Options")
        backend.set_number_of_transfer_threads(8)
    assert backend.get_predefined_options() is PredefinedOptions.FLASH_SSD_OPTIMIZED
    assert backend.get_options() == "org.example.Options"
    assert backend.get_number_of_transfer_threads() == 8
    assert backend.to_configuration().to_dict() == before
    assert [r.message for r in caplog.records] == [
        "set_predefined_options() tunes Flink's RocksDB and has no effect"
    ]


@pytest.mark.parametrize(
    ("strategy", "read_back"),
    [
        (RestartStrategies.no_restart(), NoRestart()),
        (RestartStrategies.fixed_delay_restart(3, 1500), FixedDelay(3, 1.5)),
        (RestartStrategies.fixed_delay_restart(3, timedelta(seconds=2)), FixedDelay(3, 2.0)),
        (RestartStrategies.failure_rate_restart(2, 60_000, 500), FailureRate(2, 60.0, 0.5)),
    ],
)
def test_a_restart_strategy_is_its_keys(
    strategy: RestartStrategyConfiguration, read_back: object
) -> None:
    assert read_restart_strategy(strategy.to_configuration(), checkpointing=True) == read_back
    assert strategy.get_description()


def test_falling_back_leaves_the_strategy_to_the_configuration() -> None:
    assert RestartStrategies.fall_back_restart().to_configuration() == Configuration()


def test_restart_strategies_are_equal_by_their_keys() -> None:
    assert RestartStrategies.no_restart() == RestartStrategies.no_restart()
    assert hash(RestartStrategies.no_restart()) == hash(RestartStrategies.no_restart())
    assert RestartStrategies.no_restart() != RestartStrategies.fall_back_restart()


def test_a_wrong_restart_strategy_is_rejected(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(OptionValueError, match=r"fixed-delay\.attempts"):
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(-1, 10))


@pytest.mark.parametrize("storage", [FileSystemCheckpointStorage, JobManagerCheckpointStorage])
@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("file://var/checkpoints/", "file://var/checkpoints"),
        ("/checkpoints//", "/checkpoints"),
        ("/checkpoints", "/checkpoints"),
        ("/", "/"),
        ("file:///", "file:///"),
    ],
)
def test_the_path_of_a_storage_has_no_slash_at_its_end(storage: Any, given: str, path: str) -> None:
    assert storage(given).get_checkpoint_path() == path
