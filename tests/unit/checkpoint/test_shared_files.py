from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.checkpoint.shared_files import SharedFiles, sweep
from penstock.state.backends.base import StagedName
from penstock.state.files import file_name

A, B, C, D = (Path(f"/jobs/j/shared/count/0/{name}") for name in "abcd")


def test_a_file_goes_when_its_last_holder_lets_go() -> None:
    shared = SharedFiles()
    shared.hold("chk-1", [A, B])
    shared.hold("chk-2", [B, C])
    assert shared.release("chk-1") == [A]
    assert shared.holders(B) == {"chk-2"}
    assert shared.release("chk-2") == [B, C]
    assert shared.held() == set()


def test_a_file_of_a_retained_checkpoint_stays_whatever_newer_ones_do() -> None:
    shared = SharedFiles()
    shared.hold("chk-1", [A])
    for n in range(2, 6):
        shared.hold(f"chk-{n}", [A, B])
    freed = [file for n in range(2, 6) for file in shared.release(f"chk-{n}")]
    assert freed == [B]
    assert shared.held() == {A}


def test_holding_twice_is_holding_once() -> None:
    shared = SharedFiles()
    for _ in range(2):
        shared.hold("chk-1", [A, A])
    assert shared.release("chk-1") == [A]
    assert shared.release("chk-1") == []


def test_holding_more_keeps_what_is_held() -> None:
    shared = SharedFiles()
    shared.hold("chk-1", [A])
    shared.hold("chk-1", [B])
    assert shared.release("chk-1") == [A, B]


def test_a_late_acknowledgement_of_an_aborted_checkpoint_frees_only_its_own_files() -> None:
    shared = SharedFiles()
    shared.hold("chk-1", [A])
    shared.hold("running", [A, B])
    shared.hold("late", [A, B, C])
    assert shared.release("late") == [C]
    assert shared.held() == {A, B}


def test_the_running_state_moves_on_and_leaves_what_checkpoints_need() -> None:
    shared = SharedFiles()
    assert shared.replace("running", [A, B]) == []
    shared.hold("chk-1", [A, B])
    assert shared.replace("running", [B, C]) == []
    assert shared.replace("running", [D]) == [C]
    assert shared.release("chk-1") == [A, B]
    assert shared.replace("running", []) == [D]


def test_handing_files_on_frees_none() -> None:
    shared = SharedFiles()
    shared.hold("chk-7-stage-0", [A])
    shared.hold("chk-7", [A])
    assert shared.release("chk-7-stage-0") == []
    assert shared.held() == {A}


def test_releasing_what_holds_nothing_frees_nothing() -> None:
    assert SharedFiles().release("nobody") == []


HOLDERS = st.sampled_from(["running", "chk-1", "chk-2", "chk-3"])
FILES = st.lists(st.sampled_from([A, B, C, D]))
STEPS = st.tuples(st.sampled_from(["hold", "replace", "release"]), HOLDERS, FILES)


@settings(max_examples=100, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_freed_is_exactly_what_was_held_before_and_is_by_nobody_now(
    steps: list[tuple[str, str, list[Path]]],
) -> None:
    shared = SharedFiles()
    model: dict[str, set[Path]] = {}
    for what, holder, files in steps:
        before = set().union(*model.values())
        freed: list[Path] = []
        if what == "hold":
            shared.hold(holder, files)
            model.setdefault(holder, set()).update(files)
        elif what == "replace":
            freed = shared.replace(holder, files)
            model[holder] = set(files)
        else:
            freed = shared.release(holder)
            model.pop(holder, None)
        now = set().union(*model.values())
        assert freed == sorted(before - now)
        assert shared.held() == now
        for file in (A, B, C, D):
            assert shared.holders(file) == {h for h, held in model.items() if file in held}


# -- sweeping -----------------------------------------------------------------------------------


def tree(root: Path, *names: str) -> list[Path]:
    paths = [root / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return paths


def test_a_sweep_deletes_what_nobody_names_and_directories_left_empty(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    kept, gone, lone = tree(
        shared, "count/0/1-a1-b1.base", "count/0/2-a2-b2.delta", "old/3/1-a1-b1"
    )
    assert sweep(shared, {kept}, "a2") == [gone, lone]
    assert sorted(shared.rglob("*")) == [shared / "count", shared / "count/0", kept]
    assert sweep(shared, {kept}, "a2") == []


def test_a_sweep_leaves_what_later_attempts_wrote(tmp_path: Path) -> None:
    delta, table = file_name(7, StagedName("a10", 7, 0, 0, 0), ".delta"), "~0f~000012.sst"
    table = file_name(7, StagedName("a3", 7, 0, 0, 0), table)
    files = tree(tmp_path, f"count/0/{delta}", f"count/0/{table}")
    assert sweep(tmp_path, set(), "a2") == []
    assert sweep(tmp_path, set(), "a9") == files[1:]
    assert sweep(tmp_path, set(), "a10") == files[:1]


@pytest.mark.parametrize("name", ["notes.txt", "a1-b1", "1-a-b1", "1-b1-a1"])
def test_a_sweep_leaves_names_that_do_not_say_who_wrote_them(tmp_path: Path, name: str) -> None:
    (file,) = tree(tmp_path, f"count/0/{name}")
    sweep(tmp_path, set(), "a9")
    assert file.exists()


def test_a_sweep_keeps_the_directory_itself_and_bears_its_absence(tmp_path: Path) -> None:
    tree(tmp_path / "shared", "count/0/1-a1-b1")
    sweep(tmp_path / "shared", set(), "a1")
    assert list(tmp_path.rglob("*")) == [tmp_path / "shared"]
    assert sweep(tmp_path / "nowhere", set(), "a1") == []


def test_a_sweep_deletes_nothing_if_what_to_keep_lies_elsewhere(tmp_path: Path) -> None:
    (file,) = tree(tmp_path / "shared", "count/0/1-a1-b1")
    with pytest.raises(ValueError, match="does not lie below"):
        sweep(tmp_path / "shared", {Path("count/0/1-a1-b1")}, "a1")
    assert file.exists()


def test_a_sweep_does_not_follow_links_out_of_the_directory(tmp_path: Path) -> None:
    (outside,) = tree(tmp_path / "outside", "1-a1-b1")
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "link").symlink_to(outside.parent)
    sweep(shared, set(), "a1")
    assert outside.exists()
