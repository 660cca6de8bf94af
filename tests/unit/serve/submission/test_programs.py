"""Uploaded programs: names and archives that are made to do harm, and those that are not."""

from __future__ import annotations

import io
import stat
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import InvalidProgramError, ProgramTooLargeError, UnknownProgramError
from penstock.serve.submission.programs.store import ProgramStore

LIMIT = 2_000_000


@pytest.fixture
def store(tmp_path: Path) -> ProgramStore:
    (tmp_path / "programs").mkdir()
    return ProgramStore(tmp_path / "programs", LIMIT)


def zipped(*members: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    data = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # two members of one name
        for name, content in members:
            archive.writestr(name, content)
    return data.getvalue()


def member(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


MAIN: tuple[str | zipfile.ZipInfo, bytes] = ("__main__.py", b"print(1)")


def everything_below(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def test_an_uploaded_program_is_found_by_its_id_and_only_its_owner_may_read_it(
    store: ProgramStore,
) -> None:
    added = store.add("count.py", [b"pri", b"nt(1)"])
    assert added.path.read_bytes() == b"print(1)"
    assert stat.S_IMODE(added.path.stat().st_mode) == 0o600
    assert (added.name, added.id[36:]) == ("count.py", "_count.py")
    assert store.find(added.id) == added
    assert store.list() == [added]
    store.delete(added.id)
    assert store.list() == []
    with pytest.raises(UnknownProgramError):
        store.delete(added.id)


def test_two_programs_of_one_name_are_two_programs(store: ProgramStore) -> None:
    first, second = store.add("a.py", [b"1"]), store.add("a.py", [b"2"])
    assert {p.path.read_bytes() for p in store.list()} == {b"1", b"2"}
    assert first.id != second.id


@pytest.mark.parametrize(
    "name",
    [
        *("../a.py", "/etc/a.py", "a/b.py", "..\\a.py", "a\0.py", "a\n.py", ".a.py", "-a.py"),
        *("", ".py", "a.jar", "a.py/", "a.pyc", "é.py", "a.py ", "a" * 200 + ".py"),
    ],
)
def test_a_name_that_is_none_of_a_program_is_refused(
    store: ProgramStore, name: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidProgramError):
        store.add(name, [b""])
    assert everything_below(tmp_path) == {"programs"}


@pytest.mark.parametrize(
    "id_",
    ["", "..", "../x", "/etc/passwd", "a.py", ".new-x", "0" * 32, "%2e%2e", "a" * 5000, "\0"],
)
def test_an_id_that_is_not_listed_never_becomes_a_path(store: ProgramStore, id_: str) -> None:
    with pytest.raises(UnknownProgramError):
        store.find(id_)


def test_an_upload_ends_as_soon_as_it_is_too_large(store: ProgramStore, tmp_path: Path) -> None:
    read = 0

    def endless() -> Iterator[bytes]:
        nonlocal read
        while True:
            read += 1
            yield b"#" * 1000

    with pytest.raises(ProgramTooLargeError):
        store.add("a.py", endless())
    assert read == LIMIT // 1000 + 1
    assert everything_below(tmp_path) == {"programs"}


def test_an_upload_that_breaks_off_leaves_nothing(store: ProgramStore, tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"#"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        store.add("a.py", broken())
    assert everything_below(tmp_path) == {"programs"}


def test_what_a_killed_server_left_of_an_upload_is_deleted(
    store: ProgramStore, tmp_path: Path
) -> None:
    kept = store.add("a.py", [b""])
    (tmp_path / "programs" / f".new-{kept.id}").write_bytes(b"half")
    assert store.list() == [kept]
    store.delete_unfinished()
    assert everything_below(tmp_path / "programs") == {kept.id}


# -- archives -----------------------------------------------------------------------------------


def test_an_archive_is_unpacked_with_its_packages(store: ProgramStore, tmp_path: Path) -> None:
    program = store.add("job.zip", [zipped(MAIN, ("lib/", b""), ("lib/a.py", b"x = 1"))])
    main = store.copy_to(program, tmp_path / "copy", None)
    assert main == tmp_path / "copy" / "__main__.py"
    assert everything_below(tmp_path / "copy") == {"__main__.py", "lib", "lib/a.py"}


@pytest.mark.parametrize(
    ("entry", "file"), [(None, "main.py"), ("lib.a", "lib/a.py"), ("b", "b/__main__.py")]
)
def test_the_entry_class_names_a_module(
    store: ProgramStore, tmp_path: Path, entry: str | None, file: str
) -> None:
    members = [(name, b"") for name in ("main.py", "lib/a.py", "b/__main__.py")]
    program = store.add("job.zip", [zipped(*members)])
    assert store.copy_to(program, tmp_path / "copy", entry) == tmp_path / "copy" / file


@pytest.mark.parametrize("entry", ["c", "../a", "/etc/passwd", "a..b", "", "a;b", "com.acme.Main"])
def test_an_entry_class_that_is_no_module_is_refused(
    store: ProgramStore, tmp_path: Path, entry: str
) -> None:
    program = store.add("job.zip", [zipped(MAIN)])
    with pytest.raises(InvalidProgramError):
        store.copy_to(program, tmp_path / "copy", entry)


BAD: dict[str, Callable[[], bytes]] = {
    "no zip file": lambda: b"print(1)",
    "empty": lambda: b"",
    "truncated": lambda: zipped(MAIN)[:-30],
    "no main module": lambda: zipped(("lib/__main__.py", b"")),
    "parent": lambda: zipped(MAIN, ("../../evil.py", b"")),
    "parent in the middle": lambda: zipped(MAIN, ("a/../../evil.py", b"")),
    "absolute": lambda: zipped(MAIN, ("/tmp/evil.py", b"")),
    "backslashes": lambda: zipped(MAIN, ("..\\evil.py", b"")),
    "newline": lambda: zipped(MAIN, ("a\nb.py", b"")),
    "empty part": lambda: zipped(MAIN, ("a//b.py", b"")),
    "current directory": lambda: zipped(MAIN, ("./b.py", b"")),
    "twice": lambda: zipped(MAIN, MAIN),
    "link": lambda: zipped(MAIN, (member("passwd", stat.S_IFLNK | 0o777), b"/etc/passwd")),
    "device": lambda: zipped(MAIN, (member("null", stat.S_IFCHR | 0o777), b"")),
    "too many files": lambda: zipped(MAIN, *((f"f{n}", b"") for n in range(10_001))),
}


@pytest.mark.parametrize("kind", BAD)
def test_an_archive_that_is_unsafe_or_no_program_is_refused(
    store: ProgramStore, tmp_path: Path, kind: str
) -> None:
    with pytest.raises(InvalidProgramError):
        store.add("job.zip", [BAD[kind]()])
    assert everything_below(tmp_path) == {"programs"}


def test_an_archive_that_says_it_is_a_bomb_is_refused(store: ProgramStore) -> None:
    bomb = zipped(MAIN, ("zeros", bytes(LIMIT)))
    assert len(bomb) < LIMIT / 100
    with pytest.raises(ProgramTooLargeError):
        store.add("job.zip", [bomb])


def test_an_archive_that_lies_about_its_size_unpacks_no_more_than_it_says(
    store: ProgramStore, tmp_path: Path
) -> None:
    bomb = zipped(MAIN, ("zeros", bytes(2 * LIMIT)))
    size, said = (2 * LIMIT).to_bytes(4, "little"), (10).to_bytes(4, "little")
    assert bomb.count(size) == 2
    program = store.add("job.zip", [bomb.replace(size, said)])
    with pytest.raises(InvalidProgramError):
        store.copy_to(program, tmp_path / "copy", None)
    assert sum(p.stat().st_size for p in (tmp_path / "copy").rglob("*")) < LIMIT


def test_an_encrypted_archive_is_refused(store: ProgramStore) -> None:
    data = bytearray(zipped(MAIN))
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    with pytest.raises(InvalidProgramError, match="encrypted"):
        store.add("job.zip", [bytes(data)])


def test_a_file_that_is_also_a_directory_is_refused(store: ProgramStore, tmp_path: Path) -> None:
    program = store.add("job.zip", [zipped(MAIN, ("a", b""), ("a/b", b""))])
    with pytest.raises(InvalidProgramError):
        store.copy_to(program, tmp_path / "copy", None)
