import pickle

import pytest

from penstock.common import ByteArraySchema, Encoder, Row, SimpleStringSchema, Types
from penstock.common.serialization import RowFieldExtractorSchema


def test_strings_go_and_come_in_their_charset() -> None:
    assert SimpleStringSchema().serialize("é") == b"\xc3\xa9"
    assert SimpleStringSchema("latin-1").deserialize(b"\xe9") == "é"
    assert SimpleStringSchema().get_produced_type() == Types.STRING()


def test_bytes_that_are_no_text_become_replacement_characters() -> None:
    assert SimpleStringSchema().deserialize(b"a\xff") == "a\ufffd"


def test_an_unknown_charset_is_rejected_at_once() -> None:
    with pytest.raises(LookupError):
        SimpleStringSchema("klingon")
    with pytest.raises(LookupError):
        Encoder.simple_string_encoder("klingon")


def test_bytes_pass_as_they_are() -> None:
    assert ByteArraySchema().serialize(b"x") == ByteArraySchema().deserialize(b"x") == b"x"


def test_a_row_field_gives_its_bytes() -> None:
    assert RowFieldExtractorSchema(1).serialize(Row(1, b"x")) == b"x"
    with pytest.raises(ValueError, match="-1"):
        RowFieldExtractorSchema(-1)


def test_the_string_encoder_writes_java_text_lines_and_pickles() -> None:
    encoder = pickle.loads(pickle.dumps(Encoder.simple_string_encoder()))
    row = Types.ROW([Types.STRING(), Types.DOUBLE()])
    assert encoder.encode(Row("é", 1e10), row) == "+I[é, 1.0E10]\n".encode()
    assert encoder.encode(("a", 1), None) == b"('a', 1)\n"
