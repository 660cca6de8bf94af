import tempfile
from pathlib import Path

from penstock.state.local_dir import choose_local_dir


def test_shared_memory_is_chosen_where_there_is_room(tmp_path: Path) -> None:
    assert choose_local_dir(1, shared_memory=tmp_path) == tmp_path


def test_small_or_missing_shared_memory_is_not_chosen(tmp_path: Path) -> None:
    temporary = Path(tempfile.gettempdir())
    assert choose_local_dir(1 << 60, shared_memory=tmp_path) == temporary
    assert choose_local_dir(1, shared_memory=tmp_path / "missing") == temporary
    assert choose_local_dir(1 << 60, tmp_path, tmp_path / "disk") == tmp_path / "disk"
