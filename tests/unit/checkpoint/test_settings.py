from __future__ import annotations

from pathlib import Path

import pytest

from penstock.checkpoint.settings import (
    CheckpointSettings,
    ClaimMode,
    Guarantee,
    Retention,
    StorageKind,
    read_checkpoint_settings,
)
from penstock.common import Configuration
from penstock.errors import ConfigurationError, OptionValueError


def read_pairs(pairs: dict[str, object]) -> CheckpointSettings:
    return read_checkpoint_settings(Configuration.from_dict(pairs))


def test_defaults_are_flinks() -> None:
    settings = read_pairs({})
    assert not settings.enabled
    assert (settings.interval_s, settings.records) == (None, None)
    assert settings.mode is Guarantee.EXACTLY_ONCE
    assert (settings.timeout_s, settings.min_pause_s) == (600.0, 0.0)
    assert (settings.max_concurrent, settings.tolerable_failures, settings.retained) == (1, 0, 1)
    assert (settings.unaligned, settings.aligned_timeout_s) == (False, 0.0)
    assert settings.retention is Retention.NO_EXTERNALIZED
    assert settings.storage is StorageKind.JOBMANAGER
    assert (settings.directory, settings.savepoint_directory) == (None, None)
    assert (settings.incremental, settings.synchronous) == (False, False)
    assert (settings.restore_path, settings.claim_mode) == (None, ClaimMode.NO_CLAIM)
    assert (settings.allow_non_restored_state, settings.accept_duplicates) == (False, False)
    assert (settings.committer_retries, settings.job_id) == (10, None)
    assert (settings.heartbeat_interval_s, settings.heartbeat_timeout_s) == (10.0, 50.0)
    assert settings.exception_history == 16
    assert settings.checkpoint_history == 10


@pytest.mark.parametrize(
    "pairs",
    [{"execution.checkpointing.interval": "10 s"}, {"penstock.checkpoint.records": 1000}],
)
def test_an_interval_or_a_number_of_records_turns_checkpoints_on(pairs: dict[str, object]) -> None:
    assert read_pairs(pairs).enabled
    assert not read_checkpoint_settings(Configuration.from_dict(pairs), batch_mode=True).enabled


def test_all_is_read_from_flinks_keys() -> None:
    settings = read_pairs(
        {
            "execution.checkpointing.interval": "500 ms",
            "execution.checkpointing.mode": "at_least_once",
            "execution.checkpointing.timeout": "1 min",
            "execution.checkpointing.min-pause": "2 s",
            "execution.checkpointing.max-concurrent-checkpoints": "3",
            "execution.checkpointing.tolerable-failed-checkpoints": 4,
            "execution.checkpointing.num-retained": 5,
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "execution.checkpointing.dir": "/c",
            "execution.checkpointing.savepoint-dir": "file:///s",
            "execution.checkpointing.incremental": "true",
            "execution.state-recovery.path": "/c/chk-7",
            "execution.state-recovery.claim-mode": "CLAIM",
            "execution.state-recovery.ignore-unclaimed-state": True,
            "penstock.state.snapshot": "synchronous",
            "penstock.job-id": "count-1",
            "sink.committer.retries": 0,
        }
    )
    assert (settings.interval_s, settings.timeout_s, settings.min_pause_s) == (0.5, 60.0, 2.0)
    assert settings.mode is Guarantee.AT_LEAST_ONCE
    assert (settings.max_concurrent, settings.tolerable_failures, settings.retained) == (3, 4, 5)
    assert settings.retention is Retention.RETAIN_ON_CANCELLATION
    assert settings.storage is StorageKind.FILESYSTEM
    assert (settings.directory, settings.savepoint_directory) == (Path("/c"), Path("/s"))
    assert (settings.incremental, settings.synchronous) == (True, True)
    assert (settings.restore_path, settings.claim_mode) == (Path("/c/chk-7"), ClaimMode.CLAIM)
    assert settings.allow_non_restored_state
    assert (settings.job_id, settings.committer_retries) == ("count-1", 0)


@pytest.mark.parametrize(
    "keys",
    [
        ("unaligned.enabled", "aligned-checkpoint-timeout"),
        ("unaligned", "alignment-timeout"),
    ],
)
def test_unaligned_checkpoints_are_read_in_both_spellings(keys: tuple[str, str]) -> None:
    enabled, timeout = (f"execution.checkpointing.{key}" for key in keys)
    pairs: dict[str, object] = {enabled: "true", timeout: "30 s"}
    settings = read_pairs(pairs)
    assert (settings.unaligned, settings.aligned_timeout_s) == (True, 30.0)
    assert not read_checkpoint_settings(Configuration.from_dict(pairs), batch_mode=True).unaligned


def test_a_timeout_of_alignment_alone_changes_nothing() -> None:
    settings = read_pairs(
        {
            "execution.checkpointing.aligned-checkpoint-timeout": "30 s",
            "execution.checkpointing.mode": "AT_LEAST_ONCE",
            "execution.checkpointing.max-concurrent-checkpoints": 3,
        }
    )
    assert not settings.unaligned


def test_older_spellings_are_read() -> None:
    settings = read_pairs(
        {
            "state.checkpoints.dir": "/c",
            "state.savepoints.dir": "/s",
            "state.checkpoints.num-retained": 2,
            "state.backend.incremental": True,
            "state.backend.async": False,
            "execution.savepoint.path": "/s/savepoint-1",
            "execution.savepoint-restore-mode": "CLAIM",
            "execution.savepoint.ignore-unclaimed-state": True,
        }
    )
    assert (settings.directory, settings.savepoint_directory) == (Path("/c"), Path("/s"))
    assert (settings.retained, settings.incremental, settings.synchronous) == (2, True, True)
    assert settings.restore_path == Path("/s/savepoint-1")
    assert settings.claim_mode is ClaimMode.CLAIM
    assert settings.allow_non_restored_state


def test_state_may_go_into_the_metadata_of_a_directory() -> None:
    settings = read_pairs(
        {"execution.checkpointing.storage": "jobmanager", "execution.checkpointing.dir": "/c"}
    )
    assert (settings.storage, settings.directory) == (StorageKind.JOBMANAGER, Path("/c"))


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        ({"execution.checkpointing.storage": "filesystem"}, r"set execution\.checkpointing\.dir"),
        (
            {
                "execution.checkpointing.externalized-checkpoint-retention": (
                    "RETAIN_ON_CANCELLATION"
                )
            },
            "cannot outlive the job",
        ),
        (
            {
                "execution.checkpointing.unaligned.enabled": True,
                "execution.checkpointing.mode": "AT_LEAST_ONCE",
            },
            r"unaligned\.enabled is true, and execution\.checkpointing\.mode is AT_LEAST_ONCE",
        ),
        (
            {
                "execution.checkpointing.unaligned.enabled": True,
                "execution.checkpointing.mode": "AT_MOST_ONCE",
            },
            "mode is AT_MOST_ONCE.*turn unaligned checkpoints off",
        ),
        (
            {
                "execution.checkpointing.unaligned.enabled": True,
                "execution.checkpointing.max-concurrent-checkpoints": 2,
            },
            "max-concurrent-checkpoints is 2.*set it to 1",
        ),
        ({"heartbeat.interval": "1 min"}, "a running driver is taken for dead; got 50 s and 60 s"),
    ],
)
def test_contradictions_are_refused_with_a_sentence(
    pairs: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        read_pairs(pairs)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("execution.checkpointing.interval", "9 ms"),
        ("execution.checkpointing.timeout", "0 ms"),
        ("execution.checkpointing.aligned-checkpoint-timeout", "-1 ms"),
        ("execution.checkpointing.unaligned.enabled", "perhaps"),
        ("execution.checkpointing.max-concurrent-checkpoints", 0),
        ("execution.checkpointing.tolerable-failed-checkpoints", -1),
        ("execution.checkpointing.num-retained", 0),
        ("execution.checkpointing.mode", "PERHAPS_ONCE"),
        ("execution.checkpointing.dir", "s3:///checkpoints"),
        ("execution.checkpointing.dir", "file://other-host/checkpoints"),
        ("execution.checkpointing.dir", ""),
        ("execution.state-recovery.claim-mode", "LEGACY"),
        ("penstock.checkpoint.records", 0),
        ("penstock.job-id", "../elsewhere"),
        ("penstock.job-id", ".hidden"),
        ("penstock.job-id", ""),
    ],
)
def test_values_out_of_range_are_refused_by_key(key: str, value: object) -> None:
    with pytest.raises(OptionValueError) as caught:
        read_pairs({key: value})
    assert caught.value.key == key


@pytest.mark.parametrize(
    "spelled", ["/a b", "file:/a%20b", "file:///a%20b", "FILE://localhost/a%20b"]
)
def test_a_path_may_be_plain_or_a_file_uri(spelled: str) -> None:
    assert read_pairs({"execution.checkpointing.dir": spelled}).directory == Path("/a b")


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_pairs({"execution.checkpointing.dir": "c"}).directory == tmp_path / "c"


@pytest.mark.parametrize(
    "key",
    [
        "execution.checkpointing.dir",
        "execution.checkpointing.savepoint-dir",
        "execution.state-recovery.path",
    ],
)
def test_a_path_that_is_not_utf_8_is_rejected(key: str) -> None:
    configuration = Configuration().set_string(key, "/data/caf\udce9")
    with pytest.raises(OptionValueError, match="UTF-8"):
        read_checkpoint_settings(configuration)
