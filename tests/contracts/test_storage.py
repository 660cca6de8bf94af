"""What every storage guarantees; a new one is added to `KINDS`."""

import ctypes
import errno
import multiprocessing
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.common.storage_url import Location, StorageUrl
from penstock.storage.contract import Storage
from penstock.storage.local_storage import LocalStorage
from penstock.storage.storages import storage_at
from penstock.testing.servers.hdfs_server import HdfsServer
from penstock.testing.servers.s3_server import S3Server

KINDS = [
    "local",
    pytest.param("s3", marks=pytest.mark.s3),
    pytest.param("hdfs", marks=pytest.mark.hdfs),
]
LARGE = 20 << 20
"""More than two parts of an upload."""


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """A place that does not exist yet, and nothing above it but the root of its store."""
    if request.param == "local":
        return tmp_path / "not" / "there" / "yet"
    own = f"{uuid.uuid4().hex}/not there/yet"
    if request.param == "s3":
        s3: S3Server = request.getfixturevalue("s3")
        s3.create_bucket("contract")
        return s3.url("contract", own)
    hdfs: HdfsServer = request.getfixturevalue("hdfs")
    return hdfs.url(own)


@pytest.fixture
def storage(place: Location) -> Storage:
    return storage_at(place)


def zeros(size: int) -> Iterator[bytes]:
    for start in range(0, size, 1 << 20):
        yield bytes(min(1 << 20, size - start))


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


def test_a_file_gets_another_name_and_no_other_file_is_touched(storage: Storage) -> None:
    storage.create("hidden/a b#%", b"data")
    storage.give_name("hidden/a b#%", "new/directory/c d#%")
    assert storage.read("new/directory/c d#%") == b"data"
    storage.create("hidden/e", b"other")
    with pytest.raises(FileExistsError):
        storage.give_name("hidden/e", "new/directory/c d#%")
    assert storage.read("new/directory/c d#%") == b"data"
    assert storage.read("hidden/e") == b"other"
    with pytest.raises(FileNotFoundError):
        storage.give_name("hidden/f", "new/g")
    assert not storage.exists("new/g")


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


def _race(place: Location, me: int, results: "multiprocessing.Queue[list[int]]") -> None:
    storage = storage_at(place)
    won = []
    for n in range(40):
        try:
            storage.create(f"d{n // 10}/{n}", str(me).encode() * 1000)
            won.append(n)
        except FileExistsError:
            assert len(storage.read(f"d{n // 10}/{n}")) == 1000
    results.put(won)


def test_of_processes_that_create_the_same_file_exactly_one_wins(place: Location) -> None:
    # Not forked: this process has used stores.
    spawn = multiprocessing.get_context("spawn")
    results: multiprocessing.Queue[list[int]] = spawn.Queue()
    racers = [spawn.Process(target=_race, args=(place, i, results)) for i in range(3)]
    for racer in racers:
        racer.start()
    won = [results.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    assert sorted(n for mine in won for n in mine) == list(range(40))


def test_of_threads_that_create_the_same_file_exactly_one_wins(storage: Storage) -> None:
    barrier = threading.Barrier(4)
    won: list[tuple[int, int]] = []

    def race(me: int) -> None:
        for n in range(10):
            barrier.wait(30)
            with suppress(FileExistsError):
                storage.create(f"d/{n}", b"%d" % me)
                won.append((n, me))

    threads = [threading.Thread(target=race, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(n for n, _ in won) == list(range(10))
    assert all(storage.read(f"d/{n}") == b"%d" % me for n, me in won)


# -- large files, parts of files ----------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 3, (8 << 20) - 1, 8 << 20, LARGE])
def test_a_file_is_written_from_pieces_and_read_back(storage: Storage, size: int) -> None:
    storage.write("d/a", zeros(size))
    found = storage.stat("d/a")
    assert found is not None
    assert found.size == size
    assert sum(len(piece) for piece in storage.stream("d/a")) == size
    assert storage.read("d/a") == bytes(size)
    assert storage.list("") == ["d/a"]


def test_writing_replaces_what_is_there(storage: Storage) -> None:
    storage.write("a", [b"first"])
    storage.write("a", [b"second", b" and ", b"third"])
    assert storage.read("a") == b"second and third"


@pytest.mark.parametrize("size", [0, 1 << 20, 12 << 20])
def test_nothing_is_written_if_the_pieces_fail(storage: Storage, size: int) -> None:
    def pieces() -> Iterator[bytes]:
        yield from zeros(size)
        raise FileNotFoundError(errno.ENOENT, "the source")

    storage.create("a", b"old")
    for path in ("a", "new"):
        with pytest.raises(FileNotFoundError, match="the source"):
            storage.write(path, pieces())
    assert storage.read("a") == b"old"
    assert storage.list("") == ["a"]


def test_a_file_is_copied_within_a_storage(storage: Storage) -> None:
    storage.write("a", zeros(LARGE))
    storage.write("b", storage.stream("a"))
    assert storage.read("b") == bytes(LARGE)


DATA = bytes(range(256)) * 16


@pytest.mark.parametrize(
    ("start", "length"),
    [(0, None), (0, 0), (5, 0), (0, 1), (7, 300), (4000, 500), (4095, None), (4096, None), (9, 0)],
)
@pytest.mark.parametrize("way", ["stream", "open"])
def test_a_part_of_a_file_is_read(storage: Storage, way: str, start: int, length: int) -> None:
    storage.create("a", DATA)
    if way == "stream":
        found = b"".join(storage.stream("a", start, length))
    else:
        with storage.open("a", start, length) as file:
            found = file.read()
    assert found == DATA[start : None if length is None else start + length]


def test_a_file_that_is_too_short_ends(storage: Storage) -> None:
    storage.create("a", b"abc")
    storage.create("empty", b"")
    assert b"".join(storage.stream("a", 5, 2)) == b""
    assert b"".join(storage.stream("a", 3)) == b""
    assert b"".join(storage.stream("empty", 0, 10)) == b""
    assert b"".join(storage.stream("empty")) == b""


@pytest.mark.parametrize("length", [None, 0, 3])
def test_reading_what_is_not_there_fails_with_the_first_piece(
    storage: Storage, length: int | None
) -> None:
    with pytest.raises(FileNotFoundError) as failed:
        next(storage.stream("d/a", 0, length), None)
    assert str(failed.value.filename).endswith("there/yet/d/a")
    with pytest.raises(FileNotFoundError):
        storage.open("d/a", 0, length).read()


def test_an_opened_file_is_read_piece_by_piece(storage: Storage) -> None:
    storage.create("a", DATA)
    with storage.open("a") as file:
        assert [file.read(3), file.readline(), file.read(2)] == [DATA[:3], DATA[3:11], DATA[11:13]]
        assert file.read() == DATA[13:]
        assert file.read() == b""


# -- listings -----------------------------------------------------------------------------------


def test_a_listing_shows_sizes_and_when_a_file_was_written(storage: Storage) -> None:
    storage.create("d/a", b"abc")
    storage.create("d/e/b", b"")
    found = storage.entries("d")
    assert [(entry.path, entry.size) for entry in found] == [("d/a", 3), ("d/e/b", 0)]
    # Stores count in seconds.
    assert all(abs(entry.modified - time.time()) < 60 for entry in found)
    assert found == [storage.stat("d/a"), storage.stat("d/e/b")]
    assert storage.stat("d") is None
    assert storage.stat("d/e") is None
    assert storage.stat("d/x") is None


def test_the_children_of_a_directory_are_its_files_and_directories(storage: Storage) -> None:
    for path in ("d/b", "d/a/x", "d/a/y/z", "da/c", "e", "d/.hidden"):
        storage.create(path, b"")
    assert storage.children("d") == [".hidden", "a", "b"]
    assert storage.children("d/a") == ["x", "y"]
    assert storage.children("") == ["d", "da", "e"]
    assert storage.children("x") == storage.children("e") == storage.children("d/b/c") == []


def test_many_files_are_deleted_and_others_stay(storage: Storage) -> None:
    for n in range(30):
        storage.create(f"d/{n}", b"")
    storage.delete_all(f"d/{n}" for n in range(1, 40))
    storage.delete_all([])
    assert storage.list("") == ["d/0"]


def test_a_directory_is_deleted_and_not_what_begins_like_it(storage: Storage) -> None:
    for path in ("d/a", "d/e/b", "da/c", "d-1"):
        storage.create(path, b"")
    storage.delete_tree("d")
    assert storage.list("") == ["d-1", "da/c"]
    storage.delete_tree("")
    assert storage.list("") == []


NAMES = [
    "a name",
    "100%",
    "per%20cent",
    "query?x=1&y",
    "frag#ment",
    "uni-ñ-日本-é",
    "plus+plus",
    "quo\"te'",
    "til~de *",
    "key=value,[1]{2}",
    ".hidden",
    "...",
    "back\\slash",
]


def test_names_may_have_any_characters(place: Location) -> None:
    below = storage_at(place / "ro ot%20?#ñ")
    for name in NAMES:
        below.create(f"{name}/{name}", name.encode())
        with pytest.raises(FileExistsError):
            below.create(f"{name}/{name}", b"other")
        below.replace(f"{name}/{name}", name.encode() * 2)
        below.write(f"{name}/large", zeros(9 << 20) if name == NAMES[0] else [b"x"])
    assert below.children("") == sorted(NAMES)
    assert below.list("") == sorted(f"{n}/{last}" for n in NAMES for last in (n, "large"))
    for name in NAMES:
        assert below.read(f"{name}/{name}") == name.encode() * 2
        assert below.list(name) == sorted([f"{name}/{name}", f"{name}/large"])
        found = below.stat(f"{name}/{name}")
        assert found is not None
        assert found.size == 2 * len(name.encode())
        below.delete(f"{name}/large")
    below.delete_all(f"{name}/{name}" for name in NAMES)
    assert storage_at(place).list("") == []


def test_a_path_may_have_empty_names(storage: Storage) -> None:
    storage.create("a//b/./c/", b"data")
    assert storage.list("a/") == ["a/b/c"]
    assert storage.read("a/b//c") == b"data"
    storage.delete("a//b/c")
    assert storage.list("") == []


def test_the_root_of_a_store_is_a_storage(place: Location) -> None:
    if isinstance(place, Path):
        pytest.skip("the root of the local file system is not for tests")
    own = uuid.uuid4().hex
    root = storage_at(StorageUrl(place.scheme, place.authority, (), place.options))
    root.create(f"{own}/a", b"a")
    root.write(f"{own}-b", [b"b"])
    assert root.list(own) == [f"{own}/a"]
    assert root.entries(own) == [root.stat(f"{own}/a")]
    assert {own, f"{own}-b"} <= set(root.children(""))
    assert {f"{own}/a", f"{own}-b"} <= set(root.list(""))
    assert root.location(f"{own}/a") == f"{place.scheme}://{place.authority}/{own}/a"
    root.delete_tree(own)
    root.delete(f"{own}-b")
    root.delete_unfinished(own)
    assert own not in root.children("")


def test_nothing_unfinished_is_no_error(storage: Storage) -> None:
    storage.create("d/a", b"")
    storage.delete_unfinished("d")
    storage.delete_unfinished("x")
    storage.delete_unfinished("")
    assert storage.list("") == ["d/a"]


@pytest.mark.s3
def test_a_hundred_thousand_objects_are_listed_and_deleted(s3: S3Server) -> None:
    bucket = s3.create_bucket("many")
    for directory in range(100):
        # Links, because this server takes files for objects, and new files take long.
        (bucket / "d" / f"{directory:02}").mkdir(parents=True)
        first = bucket / "d" / f"{directory:02}" / "000"
        first.touch()
        for n in range(1, 1000):
            os.link(first, first.with_name(f"{n:03}"))
    storage = storage_at(s3.url("many"))
    expected = [f"d/{n // 1000:02}/{n % 1000:03}" for n in range(100_000)]
    assert storage.list("") == expected
    assert storage.children("d") == [f"{n:02}" for n in range(100)]
    storage.delete_all(expected[500:2500])
    storage.delete_tree("d/50")
    assert storage.list("") == [
        path for path in expected[:500] + expected[2500:] if "/50/" not in path
    ]


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_other_object_stores_are_opened_without_a_request(scheme: str) -> None:
    settings = {"gs": {"skip-signature": "true"}, "az": {"account-name": "a", "use-emulator": "1"}}
    options = {f"{scheme}.{key}": value for key, value in settings[scheme].items()}
    storage = storage_at(StorageUrl(scheme, "bucket", ("d",), options))
    assert storage.location("a") == f"{scheme}://bucket/d/a"


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
