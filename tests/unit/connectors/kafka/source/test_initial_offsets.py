from pathlib import Path

from penstock.connectors.kafka.source.initial_offsets import InitialOffsets, InitialOffsetsFile

BEGAN = InitialOffsets({"orders-0": 7}, {"orders-0": 9})
LATER = InitialOffsets({"orders-0": 8}, {})


def test_initial_offsets_belong_to_one_lineage_and_request(tmp_path: Path) -> None:
    assert InitialOffsetsFile(tmp_path / "new", "life", "latest").read() is None
    assert InitialOffsetsFile(tmp_path / "new", "life", "latest").write(BEGAN) == BEGAN
    assert InitialOffsetsFile(tmp_path / "new", "life", "latest").read() == BEGAN
    assert InitialOffsetsFile(tmp_path / "new", "other life", "latest").read() is None
    assert InitialOffsetsFile(tmp_path / "new", "life", "earliest").read() is None


def test_the_first_initial_offsets_of_a_lineage_are_final(tmp_path: Path) -> None:
    note = InitialOffsetsFile(tmp_path, "life", "latest")
    note.write(BEGAN)
    assert note.write(LATER) == BEGAN
    assert note.read() == BEGAN
    assert len(list((tmp_path / "first-start").iterdir())) == 1


def test_a_partially_written_file_is_ignored(tmp_path: Path) -> None:
    note = InitialOffsetsFile(tmp_path, "life", "latest")
    note.write(BEGAN)
    path = next((tmp_path / "first-start").iterdir())
    path.rename(path.with_suffix(".a1-new"))
    path.with_suffix(".a1-new").write_bytes(b'{"sta')
    assert note.read() is None
    assert note.write(LATER) == LATER
