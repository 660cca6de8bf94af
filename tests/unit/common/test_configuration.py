import copy
import pickle

import pytest

from penstock.common import Configuration
from penstock.errors import OptionValueError


def test_values_are_read_as_the_requested_type() -> None:
    given = Configuration.from_dict({"i": "7", "b": "TRUE", "f": "1.5"})
    assert given.get_integer("i", 0) == 7
    assert given.get_boolean("b", False) is True
    assert given.get_float("f", 0.0) == 1.5


def test_typed_values_are_text_when_read_as_text() -> None:
    given = Configuration().set_integer("i", 7).set_boolean("b", True).set_float("f", 1e10)
    assert given.to_dict() == {"i": "7", "b": "true", "f": "1.0E10"}
    assert given.get_string("b", "") == "true"


def test_defaults_are_given_for_keys_not_set() -> None:
    empty = Configuration()
    assert empty.get_string("k", "d") == "d"
    assert empty.get_integer("k", 3) == 3
    assert empty.get_bytearray("k", bytearray(b"x")) == bytearray(b"x")
    assert empty.get("k") is None


def test_a_value_of_another_type_is_rejected_with_key_value_and_expectation() -> None:
    with pytest.raises(OptionValueError, match=r"'k' needs a whole number; got 'many'"):
        Configuration().set_string("k", "many").get_integer("k", 0)
    with pytest.raises(OptionValueError, match="needs true or false; got 'yes'"):
        Configuration().set_string("k", "yes").get_boolean("k", False)


def test_bytes_are_kept() -> None:
    given = Configuration().set_bytearray("k", bytearray(b"\x00\x01"))
    assert given.get_bytearray("k", bytearray()) == bytearray(b"\x00\x01")


def test_keys_can_be_listed_looked_up_and_removed() -> None:
    given = Configuration().set_string("a", "1").set("b", 2)
    assert given.key_set() == {"a", "b"}
    assert given.contains_key("a")
    assert given.remove_config("a") is True
    assert given.remove_config("a") is False


def test_add_all_prepends_the_prefix_to_keys() -> None:
    other = Configuration().set_string("a", "1")
    given = Configuration().set_string("a", "0").add_all(other).add_all(other, "p.")
    assert given.to_dict() == {"a": "1", "p.a": "1"}
    target: dict[str, object] = {}
    given.add_all_to_dict(target)
    assert target == {"a": "1", "p.a": "1"}


@pytest.mark.parametrize(
    "twin", [Configuration, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))]
)
def test_copies_are_equal_and_independent(twin) -> None:  # type: ignore[no-untyped-def]
    given = Configuration().set_integer("a", 1)
    other = twin(given)
    assert other == given
    assert hash(other) == hash(given)
    other.set_integer("a", 2)
    assert given.get_integer("a", 0) == 1


def test_lists_are_parsed_in_both_formats() -> None:
    assert Configuration.parse_list_value("a;b") == ["a", "b"]
    assert Configuration.parse_list_value("[a, 'b']") == ["a", "b"]
    assert Configuration.parse_list_value("") == []


def test_text_is_javas() -> None:
    assert str(Configuration().set_integer("a", 1).set_boolean("b", False)) == "{a=1, b=false}"
