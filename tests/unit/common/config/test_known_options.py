import logging
from datetime import timedelta

import pytest

from penstock.common import ConfigOptions, Configuration, Duration
from penstock.common.config import known_options as known
from penstock.common.config.flink_keys import FLINK_KEYS
from penstock.common.config.known_options import KNOWN_OPTIONS, overlay, validate
from penstock.common.config_options import read
from penstock.errors import ConfigurationError, OptionValueError, UnknownOptionError


def test_unknown_key_is_rejected_with_the_nearest_known_one() -> None:
    with pytest.raises(UnknownOptionError, match=r"did you mean 'parallelism\.default'\?"):
        validate(Configuration().set_integer("paralelism.default", 2))
    with pytest.raises(ConfigurationError, match="interval"):
        validate(Configuration().set_string("execution.checkpointing.intervall", "1 s"))


def test_unknown_key_near_to_nothing_is_rejected_without_a_hint() -> None:
    with pytest.raises(UnknownOptionError) as caught:
        validate(Configuration().set_string("zzz", "1"))
    assert str(caught.value) == "unknown configuration key 'zzz'"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("parallelism.default", "many"),
        ("parallelism.default", 0),
        ("parallelism.default", True),
        ("pipeline.max-parallelism", 40_000),
        ("pipeline.max-parallelism", 0),
        ("execution.runtime-mode", "LATER"),
        ("state.backend.type", "rocks"),
        ("state.backend", "rocks"),
        ("penstock.micro-batch.target-duration", "0 ms"),
        ("penstock.micro-batch.target-duration", "5 parsecs"),
        ("penstock.channel.max-bytes", "-1"),
    ],
)
def test_value_that_does_not_parse_is_rejected_by_key(key: str, value: object) -> None:
    with pytest.raises(OptionValueError, match="needs") as caught:
        validate(Configuration().set(key, value))
    assert caught.value.key == key


def test_flink_keys_without_effect_are_named_in_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = Configuration().set_string("execution.checkpointing.unaligned.forced", "true")
    given.set_string("python.fn-execution.bundle.size", "1").set_integer("parallelism.default", 2)
    with caplog.at_level(logging.WARNING):
        validate(given)
    (record,) = caplog.records
    assert "execution.checkpointing.unaligned.forced, python.fn-execution" in record.getMessage()


def test_spark_keys_pass_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    validate(Configuration().set_string("spark.sql.shuffle.partitions", "8"))
    assert not caplog.records


def test_defaults_pass_their_own_check() -> None:
    given = Configuration()
    for option in KNOWN_OPTIONS:
        if option.default is not None:
            given.set(option, option.default)
    validate(given)
    assert all(read(given, option) == option.default for option in KNOWN_OPTIONS)


def test_no_key_is_both_known_and_without_effect() -> None:
    ours = {key for option in KNOWN_OPTIONS for key in (option.key, *option.fallback_keys)}
    assert not ours & FLINK_KEYS


def test_options_read_their_defaults() -> None:
    empty = Configuration()
    assert read(empty, known.PARALLELISM) is None
    assert read(empty, known.MAX_PARALLELISM) == -1
    assert read(empty, known.RUNTIME_MODE) == "STREAMING"
    assert read(empty, known.MICRO_BATCH_TARGET_DURATION) == timedelta(seconds=1)
    assert read(empty, known.CHANNEL_MAX_BYTES) == 512 * 1024 * 1024


def test_options_read_what_was_set_as_text_or_value() -> None:
    given = Configuration().set_string("parallelism.default", "4")
    assert read(given, known.PARALLELISM) == 4
    given = Configuration().set(known.SOURCE_POLL_INTERVAL, Duration.of_seconds(2))
    assert read(given, known.SOURCE_POLL_INTERVAL) == timedelta(seconds=2)
    given = Configuration().set_string(known.RUNTIME_MODE.key, "batch")
    assert read(given, known.RUNTIME_MODE) == "BATCH"


@pytest.mark.parametrize(
    ("spelled", "backend"),
    [
        ("filesystem", "hashmap"),
        ("jobmanager", "memory"),
        ("hashmap", "hashmap"),
        ("rocksdb", "rocksdb"),
    ],
)
def test_older_names_of_the_state_backend_are_accepted(spelled: str, backend: str) -> None:
    assert (
        read(Configuration().set_string("state.backend", spelled), known.STATE_BACKEND) == backend
    )


def test_the_new_key_wins_over_the_old_one() -> None:
    given = Configuration().set_string("state.backend", "memory")
    given.set_string("state.backend.type", "hashmap")
    assert read(given, known.STATE_BACKEND) == "hashmap"


def test_a_later_configuration_overrides_under_any_key_name() -> None:
    given = Configuration().set_string("state.backend.type", "hashmap").set_string("a", "1")
    overlay(given, Configuration().set_string("state.backend", "rocksdb"))
    assert given.to_dict() == {"state.backend": "rocksdb", "a": "1"}
    overlay(given, Configuration().set_string("state.backend.type", "memory"))
    assert given.to_dict() == {"state.backend.type": "memory", "a": "1"}


@pytest.mark.parametrize(
    "rest",
    [
        "forced",
        "max-subtasks-per-channel-state-file",
        "interruptible-timers.enabled",
        "recover-output-on-downstream.enabled",
    ],
)
def test_what_flink_tunes_of_unaligned_checkpoints_is_named_as_without_effect(
    rest: str, caplog: pytest.LogCaptureFixture
) -> None:
    key = f"execution.checkpointing.unaligned.{rest}"
    with caplog.at_level(logging.WARNING):
        validate(
            Configuration()
            .set_string(key, "1")
            .set_boolean("execution.checkpointing.unaligned.enabled", True)
            .set_string("execution.checkpointing.aligned-checkpoint-timeout", "30 s")
        )
    (record,) = caplog.records
    assert record.getMessage().endswith(f": {key}")


def test_programs_can_build_options_of_their_own() -> None:
    option = ConfigOptions.key("rate").double_type().default_value(0.5)
    assert read(Configuration(), option) == 0.5
    assert read(Configuration().set_string("rate", "2"), option) == 2.0
    assert read(Configuration(), ConfigOptions.key("n").int_type().no_default_value()) is None


@pytest.mark.parametrize(
    "key",
    [
        "execution.checkpointing.dir",
        "execution.checkpointing.savepoint-dir",
        "execution.state-recovery.path",
        "penstock.work-dir",
        "penstock.state.local-dir",
        "penstock.ingestion.dir",
    ],
)
@pytest.mark.parametrize("path", ["ftp://host/there", "s3a:bucket", "hdfs:///there"])
def test_a_place_that_is_not_supported_is_refused_with_its_key(key: str, path: str) -> None:
    with pytest.raises(OptionValueError, match=f"'{key}' needs a path .*; got '{path}'$"):
        validate(Configuration.from_dict({key: path}))


@pytest.mark.parametrize(
    "key", ["penstock.work-dir", "penstock.state.local-dir", "penstock.ingestion.dir"]
)
def test_a_directory_that_tasks_write_into_cannot_be_in_a_store(key: str) -> None:
    with pytest.raises(OptionValueError, match=rf"'{key}' needs a path .* \(not s3:// or other"):
        validate(Configuration.from_dict({key: "s3://bucket/there"}))
