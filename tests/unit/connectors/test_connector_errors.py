import pickle

import pytest

from penstock.errors import (
    ChangedFileError,
    ConnectorError,
    CorruptIngestionLogError,
    LockedIngestionLogError,
    LostReceiverError,
    LostStagedFileError,
    MissingPathError,
    SocketConnectionError,
    TextDecodingError,
)

ERRORS = [
    ChangedFileError("/a", 3, 2),
    CorruptIngestionLogError("/a", 7, "why"),
    LockedIngestionLogError("/a"),
    LostReceiverError("collect"),
    LostStagedFileError("/a", 3, 2),
    MissingPathError("/a"),
    SocketConnectionError("host", 1, "refused"),
    TextDecodingError("/a", 7, "utf-8", "why"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_connector_errors_survive_pickling_with_their_text(error: ConnectorError) -> None:
    twin = pickle.loads(pickle.dumps(error))
    assert (type(twin), str(twin), vars(twin)) == (type(error), str(error), vars(error))
