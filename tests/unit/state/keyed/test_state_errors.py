import pickle

import pytest

from penstock.common import Types
from penstock.errors import (
    CorruptStateError,
    PenstockError,
    StateDeclaredTwiceError,
    StateTooLargeError,
    StateTypeMismatchError,
    UnstableKeyError,
)

ERRORS = [
    StateTypeMismatchError("f0", lambda: None, Types.LONG(), "step", "state", ("a", 1)),
    UnstableKeyError("step", object()),
    StateDeclaredTwiceError("step", "state", "value state of LONG", "list state of LONG"),
    CorruptStateError("/some/file", "it is missing"),
    StateTooLargeError("step", "state", 10, 5),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling_with_their_text(error: PenstockError) -> None:
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert vars(twin) == vars(error)
