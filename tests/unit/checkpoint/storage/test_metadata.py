import struct
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.channel.segment import Segment
from penstock.checkpoint.storage.metadata import (
    LINEAGE,
    ChannelState,
    CheckpointMetadata,
    CommittableState,
    OperatorSnapshot,
    SinkState,
    SourceState,
    SubtaskStats,
    files_of,
    full_bytes,
    new_bytes,
)
from penstock.checkpoint.storage.metadata_serializer import (
    KNOWN_VERSIONS,
    VERSION,
    decode_metadata,
    encode_metadata,
)
from penstock.connectors.contracts.snapshot_files import SnapshotFile, SnapshotFiles
from penstock.errors import CorruptMetadataError
from penstock.state.backends.refs import FileRef, SstFiles, StateRef
from penstock.state.savepoint_file import SavepointFile

GOLDEN = Path(__file__).parents[3] / "golden"

SOURCE = OperatorSnapshot(
    uid="numbers",
    name="Source: numbers",
    kind="source",
    parallelism=2,
    max_parallelism=128,
    version=7,
    operator_state=[b"\x01first", b"\x01second"],
    source=SourceState({"split-0": 4096, "split-1": 2**40}, False),
    stats=[SubtaskStats(0.5, 0.0, 0.25, 1.5, 1700000001.5, 0, 10, 20)],
)
COUNT = OperatorSnapshot(
    uid="a/path: häufig",
    name="count",
    kind="keyed process",
    parallelism=3,
    max_parallelism=128,
    version=9,
    backend="rocksdb",
    key_type="String",
    keyed=[
        StateRef(9, FileRef("base", 5, 100, 1), (FileRef("d6", 6, 10, 2), FileRef("d9", 9, 11, 3))),
        StateRef(9, tables=SstFiles(8, (FileRef("x.sst", 8, 70, 4), FileRef("y.sst", 8, 71, 5)))),
        StateRef(9, inline=b"\x00\xff"),
    ],
    ended=True,
    timers=b"\x07timers",
    stats=[
        SubtaskStats(0.1, 0.2, 0.3, 0.4, 1700000002.0, 5, 21, 121),
        SubtaskStats(new_bytes=70, full_bytes=141),
        SubtaskStats(new_bytes=2, full_bytes=2),
    ],
)
SINK = OperatorSnapshot(
    uid="out",
    name="Sink: out",
    kind="sink",
    parallelism=1,
    max_parallelism=128,
    version=9,
    sink=SinkState([CommittableState(3, b"part-3"), CommittableState(4, b"part-4")], [b"unrolled"]),
)
SAMPLE = CheckpointMetadata(
    job_id="count-1a2b3c4d",
    job_name="count",
    attempt="a2",
    checkpoint=4,
    kind="checkpoint",
    triggered=1700000000.0,
    completed=1700000003.25,
    penstock_version="0.1.0",
    operators=[SOURCE, COUNT, SINK],
    properties={"mode": "EXACTLY_ONCE"},
)


def test_metadata_survives_its_bytes() -> None:
    assert decode_metadata(encode_metadata(SAMPLE), "p") == SAMPLE


def test_sizes_are_the_sums_over_all_subtasks() -> None:
    assert (new_bytes(SAMPLE), full_bytes(SAMPLE)) == (103, 284)


def test_files_are_those_of_all_refs_below_the_operators_directory() -> None:
    uid = "uid-" + files_of(SAMPLE)[0].split("/")[0].removeprefix("uid-")
    assert len(uid) == 36
    names = ["0/base", "0/d6", "0/d9", "1/x.sst", "1/y.sst"]
    assert files_of(SAMPLE) == [f"{uid}/{name}" for name in names]
    plain = msgspec.structs.replace(COUNT, uid="count")
    one = msgspec.structs.replace(SAMPLE, operators=[plain, SOURCE])
    assert files_of(one) == [f"count/{name}" for name in names]


def test_an_operator_is_found_by_its_uid() -> None:
    assert SAMPLE.operator("out") is SINK
    assert SAMPLE.operator("nobody") is None


# -- damage -------------------------------------------------------------------------------------


def with_crc(data: bytes) -> bytes:
    return data + struct.pack(">I", zlib.crc32(data))


WHOLE = encode_metadata(SAMPLE)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "truncated"),
        (WHOLE[:5], "truncated"),
        (WHOLE[:15], "truncated"),
        (WHOLE[:-1], "truncated: .* bytes"),
        (WHOLE + b"\0", "1 bytes follow its end"),
        (b"SQLite format 3\0" + WHOLE, "not a metadata file"),
        (WHOLE[:100] + bytes([WHOLE[100] ^ 1]) + WHOLE[101:], "checksum"),
        (
            with_crc(WHOLE[:12] + b"\x00\x63" + WHOLE[14:-4]),
            "version 99, but this penstock reads 1",
        ),
        (with_crc(WHOLE[:14] + struct.pack(">Q", 1) + b"\x80"), "content cannot be decoded"),
    ],
)
def test_damaged_metadata_is_refused_with_its_path_and_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptMetadataError, match=f"/jobs/j/chk-4/_metadata.*{reason}"):
        decode_metadata(data, "/jobs/j/chk-4/_metadata")


@settings(max_examples=50, deadline=None)
@given(st.integers(0, len(WHOLE) * 8 - 1))
def test_any_flipped_bit_is_noticed(bit: int) -> None:
    data = bytearray(WHOLE)
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptMetadataError):
        decode_metadata(bytes(data), "p")


@settings(max_examples=50, deadline=None)
@given(st.integers(0, len(WHOLE) - 1))
def test_metadata_truncated_anywhere_is_refused(length: int) -> None:
    with pytest.raises(CorruptMetadataError, match="truncated"):
        decode_metadata(WHOLE[:length], "p")


# -- versions -----------------------------------------------------------------------------------


def test_every_known_version_has_a_golden_file() -> None:
    known = {f"metadata-v{version}.bin" for version in KNOWN_VERSIONS}
    assert {path.name for path in GOLDEN.glob("metadata-v*.bin")} == known
    assert max(KNOWN_VERSIONS) == VERSION


def test_version_1_is_read_as_it_was_written() -> None:
    data = (GOLDEN / "metadata-v1.bin").read_bytes()
    assert data[:14] == b"PENSTOCKCHK\0\x00\x01"
    meta = decode_metadata(data, "golden")
    assert (meta.job_id, meta.job_name, meta.attempt) == ("count-1a2b3c4d", "count", "a2")
    assert (meta.checkpoint, meta.kind, meta.penstock_version) == (4, "checkpoint", "0.1.0")
    assert (meta.triggered, meta.completed) == (1700000000.0, 1700000003.25)
    assert meta.properties == {"mode": "EXACTLY_ONCE"}
    source, count, sink = meta.operators

    assert (source.uid, source.name, source.kind) == ("numbers", "Source: numbers", "source")
    assert (source.parallelism, source.max_parallelism, source.version) == (2, 128, 7)
    assert source.operator_state == [b"\x01first", b"\x01second"]
    assert source.source is not None
    assert source.source.positions == {"split-0": 4096, "split-1": 2**40}
    assert source.source.finished is False
    assert (source.backend, source.key_type, source.keyed, source.sink) == (None, "", [], None)
    stats = source.stats[0]
    assert (stats.start_delay_s, stats.alignment_s, stats.sync_s, stats.async_s) == (
        0.5, 0.0, 0.25, 1.5
    )  # fmt: skip
    assert (stats.acknowledged, stats.blocked_bytes) == (1700000001.5, 0)
    assert (stats.new_bytes, stats.full_bytes) == (10, 20)

    assert (count.uid, count.backend, count.key_type) == ("a/path: häufig", "rocksdb", "String")
    assert (count.ended, count.timers, count.source) == (True, b"\x07timers", None)
    first, second, third = count.keyed
    assert (first.version, first.base, first.tables) == (9, FileRef("base", 5, 100, 1), None)
    assert first.deltas == (FileRef("d6", 6, 10, 2), FileRef("d9", 9, 11, 3))
    assert second.tables is not None
    assert second.tables.version == 8
    assert second.tables.files == (FileRef("x.sst", 8, 70, 4), FileRef("y.sst", 8, 71, 5))
    assert (third.base, third.deltas, third.inline) == (None, (), b"\x00\xff")
    assert len(count.stats) == 3

    assert sink.sink is not None
    assert [(c.checkpoint, c.data) for c in sink.sink.committables] == [
        (3, b"part-3"),
        (4, b"part-4"),
    ]
    assert sink.sink.state == [b"unrolled"]
    assert (sink.ended, sink.stats) == (False, [])


def forged(name: str) -> dict[str, CheckpointMetadata]:
    """The sample with a name in each place where a name becomes a path."""
    file = FileRef(name, 1, 1, 1)
    segment = Segment(name, 1, [])
    channel = ChannelState("p", 1, 0, "key_by", 1, "LONG", "a1", 0, 1, [[segment]])
    saved = SavepointFile("s", "value state", "LONG", 1, 1, 0, name, 1, 1, 1, 0, 1)
    files = SnapshotFiles("source", [SnapshotFile(name, 1, 1)])
    operators = {
        "base": replace(COUNT, keyed=[StateRef(1, file)]),
        "delta": replace(COUNT, keyed=[StateRef(1, None, (file,))]),
        "table": replace(COUNT, keyed=[StateRef(1, tables=SstFiles(1, (file,)))]),
        "segment": replace(COUNT, in_flight=[channel]),
        "savepoint": replace(COUNT, savepoint=[saved]),
        "source file": replace(SOURCE, source=SourceState({}, False, files=files)),
        "source files": replace(
            SOURCE, source=SourceState({}, False, files=SnapshotFiles(f"../{name}", []))
        ),
    }
    return {
        "job": replace(SAMPLE, job_id=name),
        "attempt": replace(SAMPLE, attempt=name),
        "lineage": replace(SAMPLE, properties={LINEAGE: name}),
        **{where: replace(SAMPLE, operators=[one]) for where, one in operators.items()},
    }


@pytest.mark.parametrize("where", forged("name"))
def test_a_name_that_leads_out_of_its_directory_is_refused(where: str) -> None:
    plain = forged("name")[where]
    assert decode_metadata(encode_metadata(plain), "/p/_metadata") == plain
    for name in ("../x", "..", "a/../../x", "/etc/passwd", "/snapshot/x", "x\0"):
        if name.startswith("/") and where == "source files":
            continue  # "..//etc/passwd" is below the directory of the job
        with pytest.raises(CorruptMetadataError, match=r"/p/_metadata.*leads out of its directory"):
            decode_metadata(encode_metadata(forged(name)[where]), "/p/_metadata")
