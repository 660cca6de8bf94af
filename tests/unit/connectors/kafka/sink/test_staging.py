"""Records that wait for their checkpoint: from the task to the committable, without a broker."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.serialization import SerializationSchema, SimpleStringSchema
from penstock.connectors.contracts.committing import commit_all
from penstock.connectors.contracts.sink import WriterContext
from penstock.connectors.kafka.client import KafkaProperties
from penstock.connectors.kafka.sink.committable import (
    KafkaCommittable,
    StagedRecords,
    TransactionalIdentity,
    decode_committable,
    decode_staged,
    encode,
)
from penstock.connectors.kafka.sink.committer import KafkaCommitter
from penstock.connectors.kafka.sink.producer import MessageSender, open_producer
from penstock.connectors.kafka.sink.publisher import KafkaPublisher
from penstock.connectors.kafka.sink.record_blocks import RecordBlockBuffer, read_blocks
from penstock.connectors.kafka.sink.serialization import KafkaRecordSerializationSchema
from penstock.connectors.kafka.sink.writer import ExactlyOnceKafkaWriter
from penstock.connectors.staging.staging_directory import StagingDirectory
from penstock.errors import (
    CommitFailedError,
    CorruptStagedRecordsError,
    KafkaDeliveryError,
    KafkaRecordError,
    LostStagedFileError,
    UnsafeNameError,
)

IDENTITY = TransactionalIdentity("id", "group", "topic")


class FirstCharacter(SerializationSchema):
    def serialize(self, element: Any) -> bytes:
        return str(element)[:1].encode()


def schema() -> KafkaRecordSerializationSchema:
    return (
        KafkaRecordSerializationSchema.builder()
        .set_topic("topic")
        .set_key_serialization_schema(FirstCharacter())
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )


def staging_in(directory: Path, attempt: str = "a1") -> StagingDirectory:
    return StagingDirectory.hidden_in(directory, "job", "step", attempt)


def staged(directory: Path, texts: list[str], name: str = "n", largest: int = 10**6) -> bytes:
    context = WriterContext(0, 1, directory / "no", name, None, "job", "a1", directory)
    writer = ExactlyOnceKafkaWriter(context, staging_in(directory), schema(), largest)
    for text in texts:
        writer.write(text)
    return writer.stage()


def parts_of(directory: Path, *batches: list[bytes], checkpoint: int = 1) -> list[KafkaCommittable]:
    publisher = KafkaPublisher(IDENTITY, staging_in(directory), 1)
    for batch in batches:
        publisher.publish(batch)
    cut = publisher.at_barrier(checkpoint, flush=True)()
    assert cut.state == []
    return [decode_committable(data) for data in cut.committables]


def texts_in(part: KafkaCommittable) -> list[str]:
    return [m["value"].decode() for _, messages in part.blocks() for m in messages]


MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.fixed_dictionaries(
            {"value": st.none() | st.binary(max_size=20)},
            optional={"key": st.none() | st.binary(max_size=9), "timestamp": st.integers(0, 2**60)},
        ),
    ),
    max_size=30,
)


@given(MESSAGES)
def test_messages_of_a_topic_are_read_in_order(messages: list[Any]) -> None:
    blocks: list[bytes] = []
    buffer = RecordBlockBuffer(blocks.append)
    for topic, message in messages:
        buffer.add(topic, message, 90_000)
    buffer.flush()
    read = list(read_blocks(io.BytesIO(b"".join(blocks)), "here"))
    for topic in ("a", "b"):
        came = [message for name, block in read if name == topic for message in block]
        assert came == [message for name, message in messages if name == topic]


@given(st.integers(0, 10**6), st.sampled_from(["cut", "flip"]))
def test_a_corrupt_block_is_never_read_as_records(at: int, damage: str) -> None:
    blocks: list[bytes] = []
    buffer = RecordBlockBuffer(blocks.append)
    buffer.add("topic", {"value": b"something"}, 9)
    buffer.flush()
    data = bytearray(b"".join(blocks))
    at %= len(data)
    if damage == "flip":
        data[at] ^= 1
    else:
        del data[max(at, 1) :]
    with pytest.raises(CorruptStagedRecordsError):
        list(read_blocks(io.BytesIO(bytes(data)), "here"))


def test_few_records_are_inline_in_the_checkpoint_and_need_no_file(tmp_path: Path) -> None:
    batches = [[staged(tmp_path, ["a"], "1")], [staged(tmp_path, ["b", "c"], "2")]]
    (part,) = parts_of(tmp_path, *batches)
    assert part.paths == []
    assert part.records == 3
    assert texts_in(part) == ["a", "b", "c"]
    assert not list(tmp_path.rglob("*.piece"))


def test_many_records_are_in_files_with_relative_names(tmp_path: Path) -> None:
    large = [str(number) * 1000 for number in range(10, 90)]
    batches = [
        [staged(tmp_path, ["a"], "1")],
        [staged(tmp_path, large, "2")],
        [staged(tmp_path, ["b"], "3")],
        [staged(tmp_path, ["c"], "4")],
    ]
    (part,) = parts_of(tmp_path, *batches)
    assert texts_in(part) == ["a", *large, "b", "c"]
    assert len(part.paths) == 3
    part.check_files()
    moved = tmp_path / "moved"
    staging_in(tmp_path).root.rename(moved)
    assert texts_in(part.moved(moved)) == ["a", *large, "b", "c"]
    with pytest.raises(LostStagedFileError):
        part.check_files()


def test_many_small_micro_batches_are_spooled_to_disk(tmp_path: Path) -> None:
    publisher = KafkaPublisher(IDENTITY, staging_in(tmp_path), 1)
    texts = [f"{number:04}" * 1000 for number in range(1000)]
    entries = [staged(tmp_path, [text], text[:4]) for text in texts]
    tracemalloc.start()
    try:
        for entry in entries:
            publisher.publish([entry])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 500_000
    (part,) = [decode_committable(d) for d in publisher.at_barrier(1, flush=False)().committables]
    assert len(part.paths) == 1
    part.check_files()
    assert part.records == 1000
    assert texts_in(part) == texts
    # The next checkpoint starts a new file.
    publisher.publish([entries[0]])
    (part,) = [decode_committable(d) for d in publisher.at_barrier(2, flush=False)().committables]
    assert (part.paths, texts_in(part)) == ([], texts[:1])
    publisher.close()


@given(st.lists(st.sampled_from([0, 1, 20_000, 50_000, 70_000]), max_size=12))
@settings(max_examples=25)
def test_staged_records_of_any_size_stay_in_order(sizes: list[int]) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name)
        batches = [
            [staged(directory, [f"{number}" + "x" * size], f"{number}")]
            for number, size in enumerate(sizes)
        ]
        for part in parts_of(directory, *batches):
            part.check_files()
            assert texts_in(part) == [f"{n}" + "x" * size for n, size in enumerate(sizes)]
            assert sum(len(one.inline) for one in part.staged) <= 32 * 1024


def test_only_subtasks_with_records_count_as_parts(tmp_path: Path) -> None:
    entries = [staged(tmp_path, ["a"]), b"", staged(tmp_path, ["c"])]
    parts = parts_of(tmp_path, entries, checkpoint=7)
    assert [(p.checkpoint, p.part, p.parts, texts_in(p)) for p in parts] == [
        (7, 0, 2, ["a"]),
        (7, 1, 2, ["c"]),
    ]
    assert parts_of(tmp_path, [b"", b"", b""]) == []


def test_a_writer_without_records_stages_nothing(tmp_path: Path) -> None:
    assert staged(tmp_path, []) == b""


def test_acknowledgements_stay_small(tmp_path: Path) -> None:
    assert len(staged(tmp_path, ["x" * 100] * 550, "1")) < 64 * 1024
    entry = staged(tmp_path, ["x" * 100] * 1000, "2")
    assert len(entry) < 100
    assert decode_staged(entry).records == 1000


def test_an_aborted_writer_leaves_no_file(tmp_path: Path) -> None:
    context = WriterContext(0, 1, tmp_path / "no", "n", None, "job", "a1", tmp_path)
    writer = ExactlyOnceKafkaWriter(context, staging_in(tmp_path), schema(), 10**6)
    for _ in range(500):
        writer.write("x" * 1000)
    assert list(tmp_path.rglob("*.piece"))
    writer.abort()
    assert not list(tmp_path.rglob("*.piece"))


def test_an_oversized_message_is_rejected_in_the_task(tmp_path: Path) -> None:
    with pytest.raises(KafkaRecordError, match="it takes 138 bytes and message"):
        staged(tmp_path, ["x" * 101], largest=137)
    assert staged(tmp_path, ["x" * 100], largest=137)


@pytest.mark.parametrize("headers", [{}, {"a": None}, {"ä": b"x" * 100, "b": b"", "c": b"d"}])
def test_messages_the_writer_accepts_are_accepted_by_the_producer(
    tmp_path: Path, headers: dict[str, bytes | None]
) -> None:
    builder = KafkaRecordSerializationSchema.builder().set_topic("topic")
    builder.set_key_serialization_schema(FirstCharacter())
    builder.set_value_serialization_schema(SimpleStringSchema())
    schema = builder.set_header_provider(lambda text: headers).build()
    producer = open_producer(
        KafkaProperties({"bootstrap.servers": "127.0.0.1:9"}), message_max_bytes=1000
    )
    sender = MessageSender(producer)
    context = WriterContext(0, 1, tmp_path / "no", "n", None, "job", "a1", tmp_path)
    writer = ExactlyOnceKafkaWriter(context, staging_in(tmp_path), schema, 1000)
    refused: list[int] = []
    for size in range(800, 1000):
        text = "x" * size
        try:
            writer.write(text)
        except KafkaRecordError:
            refused.append(size)
        else:
            sender.send("topic", [schema.encoder()(text)])
    producer.purge()
    assert refused
    # The first one that is rejected unnecessarily, if any, is nearly too large.
    with pytest.raises(KafkaDeliveryError, match="MSG_SIZE_TOO_LARGE"):
        sender.send("topic", [schema.encoder()("x" * (refused[0] + 30))])


def test_a_corrupt_file_is_reported_with_its_name(tmp_path: Path) -> None:
    (part,) = parts_of(tmp_path, [staged(tmp_path, ["x" * 100_000])])
    (path,) = part.paths
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptStagedRecordsError, match=path.name):
        texts_in(part)


def test_a_file_that_changed_before_the_barrier_fails_the_pre_commit(tmp_path: Path) -> None:
    entry = staged(tmp_path, ["x" * 100_000])
    (path,) = tmp_path.rglob("*.piece")
    path.write_bytes(b"")
    with pytest.raises(LostStagedFileError):
        parts_of(tmp_path, [entry])


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a1/../../secret"])
def test_a_forged_file_name_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    forged = KafkaCommittable(
        IDENTITY, 1, 1, 0, 1, str(tmp_path / "root"), [StagedRecords(name, 1, 1)]
    )
    with pytest.raises(UnsafeNameError):
        _ = forged.paths
    with pytest.raises(UnsafeNameError):
        forged.check_files()
    with pytest.raises(UnsafeNameError):
        list(forged.blocks())


@pytest.mark.parametrize("root", ["/etc", "/step/..", "/step/x", ""])
def test_a_forged_directory_of_another_job_is_refused(tmp_path: Path, root: str) -> None:
    other = TransactionalIdentity("other", "group", "topic")
    forged = encode(KafkaCommittable(other, 1, 1, 0, 1, root, [StagedRecords("passwd", 1, 1)]))
    committer = KafkaCommitter(KafkaProperties(), IDENTITY, staging_in(tmp_path))
    with pytest.raises(CommitFailedError, match="UnsafeNameError") as caught:
        commit_all(committer, [forged], retries=0, pause=lambda _: None, step="kafka")
    assert caught.value.kind == "impossible"
