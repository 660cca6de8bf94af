"""What every checkpoint storage guarantees; a new one is added to `KINDS`."""

import ctypes
import errno
import multiprocessing
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.storage.contract import Storage
from penstock.storage.local_storage import LocalStorage

KINDS: dict[str, Callable[[Path], Storage]] = {"local": LocalStorage}


@pytest.fixture(params=sorted(KINDS))
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return KINDS[request.param](tmp_path / "not" / "there" / "yet")


def test_a_created_file_is_read_back(storage: Storage) -> None:
    storage.create("a/b/c", b"data")
    assert storage.read("a/b/c") == b"data"
    assert storage.exists("a/b/c")
    assert storage.location("a/b/c").endswith("a/b/c")


def test_creating_what_is_there_fails_and_changes_nothing(storage: Storage) -> None:
    storage.create("a", b"first")
    with pytest.raises(FileExistsError):
        storage.create("a", b"second")
    assert storage.read("a") == b"first"
    assert storage.list("") == ["a"]


def test_replacing_writes_whether_it_is_there_or_not(storage: Storage) -> None:
    storage.replace("d/a", b"first")
    storage.replace("d/a", b"second and longer")
    storage.replace("d/a", b"third")
    assert storage.read("d/a") == b"third"


def test_what_is_not_there_is_not_there(storage: Storage) -> None:
    assert not storage.exists("a")
    assert storage.list("a") == storage.list("") == []
    with pytest.raises(FileNotFoundError):
        storage.read("a")


def test_a_directory_is_no_file(storage: Storage) -> None:
    storage.create("d/a", b"")
    assert not storage.exists("d")


def test_a_listing_is_sorted_and_has_everything_below(storage: Storage) -> None:
    for path in ("d/b", "d/a/x", "d/.hidden", "da/c", "e"):
        storage.create(path, b"")
    assert storage.list("d") == ["d/.hidden", "d/a/x", "d/b"]
    assert storage.list("") == ["d/.hidden", "d/a/x", "d/b", "da/c", "e"]


def test_deleting_twice_is_no_error(storage: Storage) -> None:
    storage.create("d/a", b"")
    storage.create("d/e/b", b"")
    for _ in range(2):
        storage.delete("d/a")
    assert storage.list("d") == ["d/e/b"]
    for _ in range(2):
        storage.delete_tree("d")
    assert storage.list("") == []
    storage.create("d/a", b"again")


@pytest.mark.parametrize("path", ["/etc/passwd", "../a", "a/../../b"])
def test_no_path_leads_out_of_the_root(storage: Storage, path: str) -> None:
    for call in (storage.read, storage.delete, storage.delete_tree, storage.list):
        with pytest.raises(ValueError, match="root"):
            call(path)


def _race(kind: str, root: Path, me: int, results: "multiprocessing.Queue[list[int]]") -> None:
    storage = KINDS[kind](root)
    won = []
    for n in range(40):
        try:
            storage.create(f"d{n // 10}/{n}", str(me).encode() * 1000)
            won.append(n)
        except FileExistsError:
            assert len(storage.read(f"d{n // 10}/{n}")) == 1000
    results.put(won)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_of_processes_that_create_the_same_file_exactly_one_wins(kind: str, tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[list[int]] = fork.Queue()
    racers = [fork.Process(target=_race, args=(kind, tmp_path, i, results)) for i in range(3)]
    for racer in racers:
        racer.start()
    won = [results.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    assert sorted(n for mine in won for n in mine) == list(range(40))


# -- local files on file systems that answer twice or have no hard links ------------------------


@pytest.fixture
def local(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


def refuse_links(patch: pytest.MonkeyPatch, number: int, before: Callable[[], None]) -> None:
    def link(*_: object) -> None:
        before()
        raise OSError(number, os.strerror(number))

    patch.setattr(os, "link", link)


def test_a_link_that_is_answered_twice_has_created_the_file(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", twice)
    local.create("a", b"mine")
    with pytest.raises(FileExistsError):
        local.create("a", b"mine")
    assert local.read("a") == b"mine"


def test_a_link_that_another_writer_has_won_is_refused(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_links(monkeypatch, errno.EEXIST, lambda: local.replace("a", b"theirs"))
    with pytest.raises(FileExistsError):
        local.create("a", b"mine")
    assert local.read("a") == b"theirs"


NO_LINKS = [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS]


@pytest.mark.parametrize("number", NO_LINKS)
def test_a_file_is_created_without_hard_links(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    refuse_links(monkeypatch, number, lambda: None)
    local.create("a", b"mine")
    assert local.read("a") == b"mine"
    assert [path.name for path in local.root.iterdir()] == ["a"]


def test_without_hard_links_another_writers_file_is_not_overwritten(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_links(monkeypatch, errno.EPERM, lambda: local.replace("a", b"theirs"))
    with pytest.raises(FileExistsError):
        local.create("a", b"mine")
    assert local.read("a") == b"theirs"
    assert [path.name for path in local.root.iterdir()] == ["a"]


def test_a_file_system_without_any_way_to_create_a_file_once_is_refused(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_links(monkeypatch, errno.EPERM, lambda: None)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    with pytest.raises(OSError, match=r"neither hard links nor .* choose another directory"):
        local.create("a", b"mine")
    assert not list(local.root.iterdir())


class Killed(BaseException):
    pass


@pytest.mark.parametrize("call", ["fsync", "link", "replace", "unlink"])
@pytest.mark.parametrize("way", ["create", "replace"])
def test_a_local_file_is_whole_or_not_there_wherever_its_writer_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, call: str
) -> None:
    def die(*_: object, **__: object) -> None:
        raise Killed

    storage = LocalStorage(tmp_path)
    if way == "replace":
        storage.create("a", b"old")
    with monkeypatch.context() as patched, suppress(Killed):
        patched.setattr(os, call, die)
        getattr(storage, way)("a", b"new")
    before = {"create": [], "replace": [b"old"]}[way]
    assert [storage.read(path) for path in storage.list("")] in (before, [b"new"])
    if way == "replace" or not storage.exists("a"):
        getattr(storage, way)("a", b"again")
        assert storage.read("a") == b"again"
