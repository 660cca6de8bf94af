"""Which files are those of a task attempt."""

from pathlib import Path

from penstock.state.backends.refs import StagedName, staged_prefix
from penstock.task.staged_files import files_of


def test_files_of_a_task_attempt_are_not_those_of_one_whose_name_begins_alike(
    tmp_path: Path,
) -> None:
    mine, other = (StagedName("a1", 5, 0, 0, number) for number in (12, 120))
    (tmp_path / "below").mkdir()
    names = [f"{mine}", f"7-{mine}.part", f"below/{mine}-0.rows", f"{other}", f"x-{other}.part"]
    for name in names:
        (tmp_path / name).touch()
    found = sorted(path.relative_to(tmp_path).as_posix() for path in files_of(tmp_path, f"{mine}"))
    assert found == sorted(names[:3])
    assert len(list(files_of(tmp_path, f"{staged_prefix('a1', 5, 0)}*"))) == 5
