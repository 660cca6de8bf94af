"""Committables of the Kafka sink: staged records of one subtask and checkpoint."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock.connectors.kafka.sink.record_blocks import read_blocks
from penstock.connectors.kafka.sink.serialization import Message
from penstock.connectors.staging.staged_output import StagedOutput
from penstock.connectors.staging.uploads import UPLOAD


class TransactionalIdentity(msgspec.Struct, frozen=True, array_like=True):
    """The transactional id of a sink, and where its commit marker is stored.

    The marker is the committed offset of ``group`` on partition 0 of ``topic``. It is only written
    in transactions of ``transactional_id``.
    """

    transactional_id: str
    group: str
    topic: str


class StagedRecords(msgspec.Struct, frozen=True, array_like=True):
    """Staged output with its number of records, in the layout of persisted committables.

    Its blocks have checksums of their own, so that of the whole file is not kept. If a committable
    has several, the first one counts the records of all.
    """

    name: str
    size: int
    records: int
    inline: bytes = b""

    @property
    def output(self) -> StagedOutput:
        """The staged output."""
        return StagedOutput(self.size, self.inline, self.name)


class KafkaCommittable(msgspec.Struct, frozen=True, array_like=True):
    """What one subtask staged up to a checkpoint: part ``part`` of ``parts`` of that checkpoint.

    File names are relative to ``root``, a directory or a place in a store. It carries the identity
    of the job that staged it: a job that restores it commits under that identity, so that the two
    never commit it twice.
    """

    identity: TransactionalIdentity
    attempt: int
    checkpoint: int
    part: int
    parts: int
    root: str
    staged: list[StagedRecords]

    @property
    def order(self) -> tuple[int, int, int]:
        """The position in which it is committed."""
        return self.attempt, self.checkpoint, self.part

    @property
    def size(self) -> int:
        """The number of bytes."""
        return sum(one.size for one in self.staged)

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(one.records for one in self.staged)

    @property
    def files(self) -> list[tuple[Path, int]]:
        """The staged files with their sizes, in order."""
        root = Path(self.root)
        return [(one.output.path(root), one.size) for one in self.staged if one.name]

    @property
    def paths(self) -> list[Path]:
        """The staged files."""
        return [path for path, _ in self.files]

    @property
    def upload(self) -> str:
        """What a store has of the files, as one file with this name; empty if there are none."""
        name = f"a{self.attempt}/{self.checkpoint}-{self.part}{UPLOAD}"
        return name if any(one.name for one in self.staged) else ""

    def moved(self, root: Path) -> KafkaCommittable:
        """Return the same committable with its files below another root."""
        return msgspec.structs.replace(self, root=str(root))

    def check_files(self) -> None:
        """Raise `LostStagedFileError` unless every file exists in full."""
        for one in self.staged:
            one.output.check(Path(self.root))

    def blocks(self) -> Iterator[tuple[str, list[Message]]]:
        """Yield topics and messages, in order."""
        for one in self.staged:
            if one.name:
                path = one.output.path(Path(self.root))
                with path.open("rb") as file:
                    yield from read_blocks(file, str(path))
            else:
                yield from read_blocks(io.BytesIO(one.inline), "the checkpoint")


encode = msgspec.msgpack.encode
decode_committable = msgspec.msgpack.Decoder(KafkaCommittable).decode
decode_staged = msgspec.msgpack.Decoder(StagedRecords).decode
