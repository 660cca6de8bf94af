from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from penstock.checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot
from penstock.checkpoint.storage.metadata_serializer import encode_metadata
from penstock.common import Types
from penstock.errors import CorruptStateError, NotASavepointError
from penstock.savepoint.directory import dispose, read_savepoint_metadata
from penstock.savepoint.read import entries_of
from penstock.state.registry.meta_info import StateMetaInfo
from tests.unit.savepoint.saved_states import ALL, registered, save, state_entries

ENTRIES = [
    registered("n", StateMetaInfo(1, "value state", "LONG")),
    *state_entries(1, "value state", Types.LONG(), Types.LONG(), ((n, n) for n in range(99))),
]


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    directory = tmp_path / "savepoint-7"
    operators = []
    for uid in ("count", "a/path: häufig"):
        files = save(directory, ENTRIES, Types.LONG(), 2, uid)
        operators.append(
            OperatorSnapshot(uid, uid, "keyed process", 2, 128, 9, key_type="LONG", savepoint=files)
        )
    operators.append(OperatorSnapshot("out", "out", "sink", 1, 128, 9))
    meta = CheckpointMetadata(
        job_id="count-1a2b",
        job_name="count",
        attempt="a1",
        checkpoint=7,
        kind="savepoint",
        triggered=1.0,
        completed=2.0,
        penstock_version="0.1.0",
        operators=operators,
    )
    (directory / "_metadata").write_bytes(encode_metadata(meta))
    return directory


def test_a_savepoint_moved_elsewhere_holds_what_it_held(savepoint: Path, tmp_path: Path) -> None:
    moved = savepoint.rename(tmp_path / "elsewhere")
    for operator in read_savepoint_metadata(moved).operators[:2]:
        assert list(entries_of(moved, operator.savepoint, ALL)) == ENTRIES


def test_a_savepoint_is_deleted_whole(savepoint: Path, tmp_path: Path) -> None:
    dispose(savepoint / "_metadata")
    assert list(tmp_path.iterdir()) == []


def test_what_others_put_beside_it_stays(savepoint: Path) -> None:
    (savepoint / "notes.txt").write_text("mine")
    dispose(savepoint)
    assert [path.name for path in savepoint.iterdir()] == ["notes.txt"]


def test_a_half_deleted_savepoint_restores_nothing_and_can_be_deleted(savepoint: Path) -> None:
    (savepoint / "count" / "n" / "part-1.parquet").unlink()
    operator = read_savepoint_metadata(savepoint).operator("count")
    assert operator is not None
    with pytest.raises(CorruptStateError, match=r"part-1\.parquet .* missing"):
        list(entries_of(savepoint, operator.savepoint, ALL))
    dispose(savepoint)
    assert not savepoint.exists()


def damaged(savepoint: Path) -> str:
    path = savepoint / "_metadata"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    return "checksum"


def a_checkpoint(savepoint: Path) -> str:
    meta = msgspec.structs.replace(read_savepoint_metadata(savepoint), kind="checkpoint")
    (savepoint / "_metadata").write_bytes(encode_metadata(meta))
    return "it is a checkpoint of job 'count'"


def without_metadata(savepoint: Path) -> str:
    (savepoint / "_metadata").unlink()
    return "it has no _metadata"


@pytest.mark.parametrize("spoil", [damaged, a_checkpoint, without_metadata])
def test_what_is_no_savepoint_is_not_deleted(savepoint: Path, spoil: object) -> None:
    assert callable(spoil)
    reason = spoil(savepoint)
    before = sorted(savepoint.rglob("*"))
    with pytest.raises(NotASavepointError, match=reason):
        dispose(savepoint)
    assert sorted(savepoint.rglob("*")) == before


def test_a_path_that_leads_nowhere_is_no_savepoint(tmp_path: Path) -> None:
    with pytest.raises(NotASavepointError, match="no such directory"):
        dispose(tmp_path / "nowhere")
