"""A storage in HDFS whose requests, answers and processes get lost."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress

import pytest

from penstock.common.storage_url import StorageUrl
from penstock.errors import RuntimeSetupError, StorageSettingsError
from penstock.storage.clients.hdfs_client import HdfsFailure
from penstock.storage.hdfs_storage import HdfsStorage
from penstock.testing.servers.hdfs_server import HdfsServer
from tests.servers.cutting_proxy import CuttingProxy, Loss
from tests.servers.request_watch import request_with

pytestmark = pytest.mark.hdfs

RENAME = request_with(b"\x07rename2")
"""A request of the name node's protocol has the name of its method with its length before it."""


@pytest.fixture
def storage(hdfs: HdfsServer) -> HdfsStorage:
    return HdfsStorage(hdfs.url(uuid.uuid4().hex))


@pytest.fixture
def proxy(hdfs: HdfsServer) -> Iterator[CuttingProxy]:
    with CuttingProxy(hdfs.port, watching=RENAME) as proxy:
        yield proxy


def through(proxy: CuttingProxy, storage: HdfsStorage, **settings: str) -> HdfsStorage:
    """Return the same place whose name node is reached through a proxy."""
    options = {f"hdfs.{name.replace('_', '-')}": value for name, value in settings.items()}
    authority = f"{proxy.host}:{proxy.port}"
    return HdfsStorage(StorageUrl("hdfs", authority, storage.root.parts, options))


def hidden(storage: HdfsStorage) -> list[str]:
    found = storage._hdfs.list_status("/", recursive=True)
    return [f.path for f in found if ".staged-" in f.path and storage.root.path in f.path]


@pytest.mark.parametrize("loss", list(Loss))
@pytest.mark.parametrize("way", ["create", "replace", "write"])
def test_a_file_is_written_although_a_request_or_its_answer_is_lost(
    storage: HdfsStorage, proxy: CuttingProxy, way: str, loss: Loss
) -> None:
    proxy.cut_at(1, loss=loss)
    getattr(through(proxy, storage), way)("d/a", [b"mine"] if way == "write" else b"mine")
    assert proxy.await_cut(0)
    assert storage.read("d/a") == b"mine"
    assert hidden(storage) == []


def test_a_create_whose_answer_is_lost_is_refused_if_another_writer_was_first(
    storage: HdfsStorage, proxy: CuttingProxy
) -> None:
    late = through(proxy, storage)
    # Between its look whether the file exists and its rename.
    stage = late._stage

    def create_and_stage(target: str, pieces: list[bytes]) -> str:
        storage.create("a", b"theirs")
        return stage(target, pieces)

    late._stage = create_and_stage  # type: ignore[method-assign, assignment]
    proxy.cut_at(1)
    with pytest.raises(FileExistsError) as refused:
        late.create("a", b"mine")
    assert refused.value.filename == late.location("a")
    assert storage.read("a") == b"theirs"
    assert hidden(storage) == []


def test_a_data_node_that_goes_away_in_the_middle_of_a_block_is_a_passing_failure() -> None:
    error = RuntimeError('DataTransferError("Datanode connection closed while waiting for ack")')
    assert HdfsFailure.of(error).is_passing


def test_a_cluster_that_is_killed_during_writes_is_waited_for(
    hdfs: HdfsServer, storage: HdfsStorage
) -> None:
    done: list[str] = []
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for n in range(40):
                storage.create(f"d/{n}", b"%d" % n)
                storage.replace("last", b"%d" % n)
                done.append(f"d/{n}")
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    while len(done) < 10 and not failures:
        time.sleep(0.002)
    hdfs.kill()
    hdfs.start()
    writer.join(240)
    assert not writer.is_alive(), f"the writer waits since it has written {done[-1]}"
    assert failures == []
    assert storage.list("") == sorted([*(f"d/{n}" for n in range(40)), "last"])
    assert all(storage.read(f"d/{n}") == b"%d" % n for n in range(40))
    assert storage.read("last") == b"39"


WRITE = """
import sys, time
from penstock.common.storage_url import StorageUrl
from penstock.storage.clients.hdfs_client import HdfsFailure
from penstock.storage.hdfs_storage import HdfsStorage
def pieces():
    for n in range(4):
        yield bytes(1 << 20)
    print("begun", flush=True)
    time.sleep(60)
HdfsStorage(StorageUrl("hdfs", {authority!r}, {parts!r})).write({path!r}, pieces())
"""


def test_what_a_killed_process_has_written_is_not_visible_and_can_be_removed(
    hdfs: HdfsServer, storage: HdfsStorage
) -> None:
    storage.create("d/other", b"")
    for path in ("d/a b%20c?#é", "e/f"):
        program = WRITE.format(authority=hdfs.authority, parts=storage.root.parts, path=path)
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == b"begun\n"
            process.send_signal(signal.SIGKILL)
        process.wait()
    assert len(hidden(storage)) == 2
    assert storage.list("") == ["d/other"]
    assert storage.children("d") == ["other"]
    storage.delete_unfinished("d")
    assert len(hidden(storage)) == 1
    storage.delete_unfinished("")
    assert hidden(storage) == []
    assert storage.list("") == ["d/other"]


def test_a_name_node_that_is_away_is_given_up_in_time(
    hdfs: HdfsServer, storage: HdfsStorage
) -> None:
    with CuttingProxy(hdfs.port) as gone:
        settings = {"retry_timeout": "500 ms", "dfs.client.failover.max.attempts": "1"}
        away = through(gone, storage, **settings)
    begun = time.monotonic()
    for call in (away.read, away.stat, away.list, away.children, away.delete):
        with pytest.raises(OSError, match="check the name node and the data nodes") as failed:
            call("a")
        assert failed.value.errno == errno.EIO
        assert failed.value.filename == away.location("a")
    assert time.monotonic() - begun < 30


def test_missing_permissions_are_named(hdfs: HdfsServer, storage: HdfsStorage) -> None:
    storage.create("d/a", b"")
    program = f"""
from penstock.common.storage_url import StorageUrl
from penstock.storage.clients.hdfs_client import HdfsFailure
from penstock.storage.hdfs_storage import HdfsStorage
storage = HdfsStorage(StorageUrl("hdfs", {hdfs.authority!r}, {storage.root.parts!r}))
for call in (storage.create, storage.replace, lambda path, data: storage.write(path, [data])):
    try:
        call("d/b", b"")
    except PermissionError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "HADOOP_USER_NAME": "somebody"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert all("Permission denied: user=somebody" in line for line in lines)
    assert all("HADOOP_USER_NAME" in line and storage.location("d/b") in line for line in lines)


@pytest.mark.parametrize(
    ("authority", "key", "value", "reason"),
    [
        ("localhost:1", "retries", "3", "retries: unknown; correct or remove it"),
        ("localhost:1", "retry-timeout", "soon", "retry-timeout: needs a duration such as"),
        ("service", "retry-timeout", "1 s", "No NameNode hosts found.*HADOOP_CONF_DIR"),
    ],
)
def test_a_wrong_setting_is_named(authority: str, key: str, value: str, reason: str) -> None:
    with pytest.raises(StorageSettingsError, match=f"penstock.storage.hdfs.*{reason}"):
        HdfsStorage(StorageUrl("hdfs", authority, (), {f"hdfs.{key}": value}))


def test_a_name_service_is_found_by_its_settings(hdfs: HdfsServer) -> None:
    settings = {
        "hdfs.dfs.ha.namenodes.service": "one,two",
        "hdfs.dfs.namenode.rpc-address.service.one": "127.0.0.1:1",
        "hdfs.dfs.namenode.rpc-address.service.two": hdfs.authority,
    }
    storage = HdfsStorage(StorageUrl("hdfs", "service", (uuid.uuid4().hex,), settings))
    storage.create("a", b"x")
    assert storage.read("a") == b"x"
    assert storage.location("a").startswith("hdfs://service/")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(RuntimeSetupError, match=r"pip install .*penstock\[hdfs\]"):
        HdfsStorage(StorageUrl("hdfs", "localhost:2", ()))


def test_names_that_no_file_can_have_are_refused(storage: HdfsStorage) -> None:
    with pytest.raises(OSError, match="Invalid path name") as refused:
        storage.create("with:colon", b"")
    assert refused.value.errno == errno.EINVAL
    storage.create("file", b"")
    for call in (storage.create, storage.replace):
        with pytest.raises(NotADirectoryError):
            call("file/below", b"")


def test_a_process_that_was_forked_after_hdfs_was_used_is_refused(storage: HdfsStorage) -> None:
    storage.create("a", b"")
    pid = os.fork()
    if pid == 0:
        refused = 1
        with suppress(RuntimeError):
            storage.read("a")
            refused = 0
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


def test_storages_of_one_cluster_share_a_client(hdfs: HdfsServer) -> None:
    storages = [HdfsStorage(hdfs.url(f"{n}")) for n in range(100)]
    assert len({id(storage._client) for storage in storages}) == 1
