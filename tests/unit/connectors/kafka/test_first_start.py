from pathlib import Path

from penstock.connectors.kafka.first_start import FirstStart, FirstStartNote

BEGAN = FirstStart({"orders-0": 7}, {"orders-0": 9})
LATER = FirstStart({"orders-0": 8}, {})


def test_a_note_is_read_in_its_life_and_for_what_it_was_asked_only(tmp_path: Path) -> None:
    assert FirstStartNote(tmp_path / "new", "life", "latest").read() is None
    assert FirstStartNote(tmp_path / "new", "life", "latest").write(BEGAN, "a1") == BEGAN
    assert FirstStartNote(tmp_path / "new", "life", "latest").read() == BEGAN
    assert FirstStartNote(tmp_path / "new", "other life", "latest").read() is None
    assert FirstStartNote(tmp_path / "new", "life", "earliest").read() is None


def test_the_first_note_of_a_life_stays(tmp_path: Path) -> None:
    note = FirstStartNote(tmp_path, "life", "latest")
    note.write(BEGAN, "a1")
    assert note.write(LATER, "a2") == BEGAN
    assert note.read() == BEGAN
    assert len(list((tmp_path / "first-start").iterdir())) == 1


def test_what_a_dead_writer_left_half_written_is_no_note(tmp_path: Path) -> None:
    note = FirstStartNote(tmp_path, "life", "latest")
    note.write(BEGAN, "a1")
    path = next((tmp_path / "first-start").iterdir())
    path.rename(path.with_suffix(".a1-new"))
    path.with_suffix(".a1-new").write_bytes(b'{"sta')
    assert note.read() is None
    assert note.write(LATER, "a1") == LATER
