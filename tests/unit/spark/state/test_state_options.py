"""Options are checked before anything is read, and errors name the options."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.common.storage_url import StorageUrl
from penstock.errors import KeyNotOfTypeError, StateOptionError, UnknownStateError
from penstock.spark.state.options import What, parse_options
from tests.unit.spark.state.reads import BOOK, golden, read

CONFLICTS = {
    "stateVarName and readRegisteredTimers": {
        "stateVarName": "count",
        "readRegisteredTimers": "true",
    },
    "checkpointId and batchId": {"checkpointId": "1", "batchId": "1"},
    "operatorUid and operatorName": {"operatorUid": "a", "operatorName": "a"},
    "readChangeFeed and batchId": {
        "readChangeFeed": "true",
        "changeStartBatchId": "1",
        "batchId": "1",
    },
    "readChangeFeed and changeStartCheckpointId": {"readChangeFeed": "true"},
    "changeStartBatchId and readChangeFeed": {"changeStartBatchId": "1"},
    "changeStartCheckpointId and changeStartBatchId": {
        "readChangeFeed": "true",
        "changeStartBatchId": "1",
        "changeStartCheckpointId": "1",
    },
    "changeEndBatchId and changeStartCheckpointId": {
        "readChangeFeed": "true",
        "changeStartCheckpointId": "2",
        "changeEndBatchId": "1",
    },
    "key and keys": {"key": "1", "keys": "[1]"},
    "readSourcePositions and readPendingCommittables": {
        "readSourcePositions": "true",
        "readPendingCommittables": "true",
    },
    "readSourcePositions and key": {"readSourcePositions": "true", "key": "1"},
    "operatorId and operatorUid": {"operatorId": "0"},
    "joinSide and stateVarName": {"joinSide": "left"},
    "stateName and stateVarName": {"stateName": "count"},
}


@pytest.mark.parametrize("both", CONFLICTS)
def test_conflicting_options_are_errors_that_name_both(both: str) -> None:
    one, _, other = both.partition(" and ")
    with pytest.raises(StateOptionError) as raised:
        parse_options({"path": "/a", **CONFLICTS[both]})
    assert one in str(raised.value)
    assert other in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batchId", "-1"),
        ("flattenCollectionTypes", "yes"),
        ("keys", "1"),
        ("keys", "[1"),
        ("stateKind", "list"),
        ("path", "ftp://a/b"),
        ("minPartitions", "many"),
    ],
)
def test_a_bad_value_is_an_error_that_names_the_option(name: str, value: str) -> None:
    with pytest.raises(StateOptionError, match=name):
        parse_options({"path": "/a", name: value})


def test_names_are_case_insensitive_and_settings_of_stores_stay_with_the_path() -> None:
    options = parse_options(
        {
            "PATH": "s3a://bucket/job",
            "STATEVARNAME": "count",
            "penstock.storage.s3.access-key": "me",
        }
    )
    assert options.what is What.STATE
    assert options.state == "count"
    assert isinstance(options.path, StorageUrl)
    assert options.path.options == {"s3.access-key": "me"}
    assert "me" not in str(options.path)


def test_what_does_not_fit_the_snapshot_is_an_error_that_says_what_there_is(tmp_path: Path) -> None:
    path = golden("memory", tmp_path)
    with pytest.raises(StateOptionError, match=r"operatorUid.*KEYED PROCESS"):
        read(path)
    with pytest.raises(StateOptionError, match=r"stateVarName.*count, first, kept"):
        read(path, operatorUid=BOOK)
    with pytest.raises(UnknownStateError, match=r"count, first, kept"):
        read(path, operatorUid=BOOK, stateVarName="counts")
    with pytest.raises(KeyNotOfTypeError, match="Long"):
        read(path, operatorUid=BOOK, stateVarName="count", key="three")
    with pytest.raises(StateOptionError, match="has no timers"):
        read(path, operatorUid="GlobalWindows", readRegisteredTimers=True)
    with pytest.raises(StateOptionError, match="has no keys"):
        read(path, operatorUid="Keyed-Co-Process-Broadcast", stateVarName="rates", key=1)
