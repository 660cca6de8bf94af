import pickle

import pytest

from penstock.common import Types
from penstock.errors import (
    ConfigurationError,
    OptionValueError,
    PenstockError,
    TypeMismatchError,
    UnknownOptionError,
)

ERRORS = [
    PenstockError("plain"),
    ConfigurationError("plain"),
    UnknownOptionError("parallelism", nearest="parallelism.default"),
    OptionValueError(key="parallelism.default", value="many", expected="an integer"),
    TypeMismatchError(path="f1", value="x", type_info=Types.INT()),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling_with_their_text(error: PenstockError) -> None:
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert vars(twin) == vars(error)


def test_a_type_mismatch_pickles_even_if_its_value_does_not() -> None:
    error = TypeMismatchError("", lambda: None, Types.INT())
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_type_mismatch_names_field_value_and_type() -> None:
    error = TypeMismatchError("f1", "x", Types.INT())
    assert str(error) == "field 'f1' does not fit its declared type Integer; got 'x'"
    error = TypeMismatchError("", 2**40, Types.INT())
    assert str(error) == "the record does not fit its declared type Integer; got 1099511627776"


def test_a_long_value_is_shown_in_part() -> None:
    assert len(str(TypeMismatchError("", "x" * 10_000, Types.INT()))) < 300
