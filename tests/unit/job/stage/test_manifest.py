from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from penstock.channel.segment import Segment, Slice
from penstock.job.stage.manifest import Manifest, StageManifest, add_counts, write_manifest
from penstock.state.backends.refs import FileRef, StateRef

STAGE = StageManifest(
    stage=1,
    batch=7,
    try_number=2,
    winners=["a1-b7-t2-s0-a9"],
    positions={"file": 2**40},
    consumed={0: 3},
    segments={2: [Segment("x.arrow", 10, [[Slice(0, 10, 4, 99)], []])]},
    state=[StateRef(7, None, (FileRef("d", 7, 1, 2),))],
    records_in=4,
    counters={"uid": {"seen": 4}},
)
MANIFEST = Manifest([STAGE])


def test_a_manifest_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "7.json"
    write_manifest(path, MANIFEST)
    assert msgspec.json.decode(path.read_bytes(), type=Manifest) == MANIFEST
    assert [p.name for p in path.parent.iterdir()] == ["7.json"]


def test_an_interrupted_write_publishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "7.json"

    def no_rename(self: Path, target: Path) -> Path:
        raise OSError

    monkeypatch.setattr(Path, "replace", no_rename)
    with pytest.raises(OSError):  # noqa: PT011
        write_manifest(path, MANIFEST)
    assert not path.exists()


def test_counts_add_up_by_operator_and_name() -> None:
    totals = {"a": {"seen": 1}}
    add_counts(totals, {"a": {"seen": 2, "bad": 1}, "b": {"seen": 5}})
    assert totals == {"a": {"seen": 3, "bad": 1}, "b": {"seen": 5}}
