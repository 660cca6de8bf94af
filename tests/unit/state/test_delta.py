import io
import zlib
from pathlib import Path

import pytest

from penstock.errors import CorruptStateError
from penstock.state import delta as delta_module
from penstock.state.delta import (
    Delta,
    Sums,
    blocks_of,
    blocks_of_entries,
    decode_delta,
    encode_delta,
    read_blocks,
    write_blocks,
)

DELTA = Delta([b"a", b"b"], [b"1", b""], [b"c"])


def test_a_delta_round_trips() -> None:
    assert decode_delta(encode_delta(DELTA, 5), version=5) == DELTA
    assert decode_delta(encode_delta(Delta())) == Delta()


def test_the_checksum_of_a_file_is_that_of_its_bytes() -> None:
    buffer = io.BytesIO()
    sums = write_blocks(buffer, 5, blocks_of(DELTA))
    assert sums == Sums(len(buffer.getvalue()), zlib.crc32(buffer.getvalue()))


def test_the_format_never_changes() -> None:
    assert encode_delta(Delta([b"a"], [b"1"], [b"c"]), 5).hex() == (
        "504e534b010000000000000000000005"
        "0000000a9391c4016191c4013190fec32c400000000793909091c40163b3f3d3560000000086378069"
    )


def test_a_large_state_is_split_into_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_module, "ENTRIES_PER_BLOCK", 10)
    monkeypatch.setattr(delta_module, "BYTES_PER_BLOCK", 100)
    entries = [(b"%04d" % number, b"x" * 30) for number in range(25)]
    blocks = list(blocks_of_entries(iter(entries)))
    assert [pair for block in blocks for pair in zip(block.keys, block.values, strict=True)] == (
        entries
    )
    assert max(len(block.keys) for block in blocks) <= 5
    delta = Delta([k for k, _ in entries], [v for _, v in entries], [b"%d" % n for n in range(30)])
    assert decode_delta(encode_delta(delta)) == delta


@pytest.mark.parametrize("length", range(len(encode_delta(DELTA, 5))))
def test_a_file_truncated_anywhere_is_rejected(length: int) -> None:
    with pytest.raises(CorruptStateError, match="truncated"):
        decode_delta(encode_delta(DELTA, 5)[:length], "some.delta")


@pytest.mark.parametrize("position", range(len(encode_delta(DELTA, 5))))
def test_a_flipped_bit_anywhere_is_rejected(position: int) -> None:
    data = bytearray(encode_delta(DELTA, 5))
    data[position] ^= 0x10
    with pytest.raises(CorruptStateError, match=r"some\.delta"):
        decode_delta(bytes(data), "some.delta")


def test_bytes_after_the_end_are_rejected() -> None:
    with pytest.raises(CorruptStateError, match="after its end"):
        decode_delta(encode_delta(DELTA) + b"\0")


def test_a_whole_file_that_is_another_one_is_rejected() -> None:
    data = encode_delta(DELTA, 5)
    with pytest.raises(CorruptStateError, match="version 5, not 6"):
        decode_delta(data, version=6)
    with pytest.raises(CorruptStateError, match="another file"):
        list(read_blocks(io.BytesIO(data), Path("x"), 5, Sums(len(data), 1)))


def test_something_that_is_not_a_state_file_is_rejected() -> None:
    with pytest.raises(CorruptStateError, match="not a state file"):
        decode_delta(b"PAR1" + bytes(60))
    with pytest.raises(CorruptStateError, match="format 9"):
        decode_delta(b"PNSK\x09" + bytes(60))
