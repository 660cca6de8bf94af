"""An object storage whose requests, answers and processes get lost."""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from penstock.errors import RuntimeSetupError, StorageSettingsError
from penstock.storage.clients.s3_requests import RefusedError, SignedBucket
from penstock.storage.object_storage import ObjectStorage
from penstock.testing.servers.s3_server import S3Server
from tests.servers.faulty_s3 import Fault, FaultyS3, Request

pytestmark = pytest.mark.s3

BUCKET = "faults"
PART = 8 << 20
QUICK = {"init_backoff": "10 ms", "max_backoff": "50 ms"}


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyS3]:
    s3.create_bucket(BUCKET)
    with FaultyS3(s3.port) as proxy:
        yield proxy


@pytest.fixture
def storage(s3: S3Server, proxy: FaultyS3) -> ObjectStorage:
    return through(s3, proxy, **QUICK)


def through(s3: S3Server, proxy: FaultyS3, **settings: str) -> ObjectStorage:
    """Return a storage of its own that reaches the server through the proxy."""
    return ObjectStorage(s3.url(BUCKET, uuid.uuid4().hex, endpoint=proxy.endpoint, **settings))


def direct(s3: S3Server, storage: ObjectStorage) -> ObjectStorage:
    """Return the same place without the proxy."""
    return ObjectStorage(storage.root.with_options(s3.options()))


def parts(count: int) -> Iterator[bytes]:
    for n in range(8 * count):
        yield bytes([n]) * (1 << 20)


# -- requests -----------------------------------------------------------------------------------


def test_requests_are_counted_and_carry_the_hash_of_their_content(
    storage: ObjectStorage, proxy: FaultyS3
) -> None:
    def cost(call: Callable[[], object]) -> list[str]:
        proxy.counted()
        call()
        assert not any("UNSIGNED" in str(r.headers) for r in proxy.requests if r.method != "DELETE")
        return proxy.counted()

    assert cost(lambda: storage.create("a", b"x")) == ["PUT"]
    assert cost(lambda: storage.replace("a", b"x")) == ["PUT"]
    assert cost(lambda: storage.write("b", [b"x"] * 100)) == ["PUT"]
    uploaded = ["POST uploads", *["PUT partNumber,uploadId"] * 3, "POST uploadId"]
    assert cost(lambda: storage.write("c", parts(3))) == uploaded
    assert cost(lambda: storage.read("a")) == ["GET"]
    assert cost(lambda: list(storage.stream("c"))) == ["GET"]
    assert cost(lambda: list(storage.stream("c", 5, 1 << 20))) == ["GET"]
    assert cost(lambda: storage.stat("a")) == ["HEAD"]
    assert cost(lambda: storage.entries("")) == ["GET list-type,prefix"]
    assert cost(lambda: storage.children("")) == ["GET delimiter,list-type,prefix"]
    assert cost(lambda: storage.delete("a")) == ["POST delete"]
    assert cost(lambda: storage.delete_all(map(str, range(2001)))) == ["POST delete"] * 3
    listed_and_deleted = ["GET list-type,prefix", "POST delete"]
    assert cost(lambda: storage.delete_tree("")) == listed_and_deleted
    storage.create("a", b"x")
    with pytest.raises(FileExistsError):
        storage.create("a", b"y")
    assert proxy.counted()[-3:] == ["PUT", "PUT", "GET"]


def test_content_that_is_changed_on_its_way_is_refused(
    s3: S3Server, proxy: FaultyS3, storage: ObjectStorage
) -> None:
    proxy.choose = lambda r: Fault(request_body=b"y" * len(r.body)) if r.method == "PUT" else None
    with pytest.raises(OSError, match="XAmzContentSHA256Mismatch"):
        storage.create("a", b"x" * 100)
    assert direct(s3, storage).list("") == []


def test_an_upload_holds_a_few_parts_in_memory(s3: S3Server) -> None:
    program = f"""
import resource, time
from penstock.storage.object_storage import ObjectStorage
from penstock.testing.servers.s3_server import S3Server
from penstock.common.storage_url import StorageUrl
storage = ObjectStorage(StorageUrl("s3", {BUCKET!r}, ("memory",), {dict(s3.options())!r}))
storage.write("a", (bytes(1 << 20) for _ in range(10)))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
storage.write("a", (bytes(1 << 20) for _ in range(200)))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
storage.delete("a")
"""
    s3.create_bucket(BUCKET)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 40 << 10


# -- creating -----------------------------------------------------------------------------------


def test_a_create_whose_answer_is_lost_has_created_the_file(
    storage: ObjectStorage, proxy: FaultyS3
) -> None:
    proxy.once(Fault(loses_answer=True), "PUT")
    storage.create("a", b"mine")
    assert proxy.counted() == ["PUT", "PUT", "GET"]
    assert storage.read("a") == b"mine"


def test_a_create_whose_answer_is_lost_is_refused_if_another_writer_was_first(
    s3: S3Server, storage: ObjectStorage, proxy: FaultyS3
) -> None:
    direct(s3, storage).create("a", b"theirs")
    proxy.once(Fault(loses_answer=True), "PUT")
    with pytest.raises(FileExistsError) as refused:
        storage.create("a", b"mine")
    assert refused.value.filename == storage.location("a")
    assert storage.read("a") == b"theirs"


def test_a_create_that_is_answered_too_late_has_created_the_file(
    s3: S3Server, proxy: FaultyS3
) -> None:
    storage = through(s3, proxy, **QUICK, read_timeout="300 ms")
    proxy.once(Fault(delay=0.8), "PUT")
    storage.create("a", b"mine")
    assert storage.read("a") == b"mine"
    time.sleep(0.8)
    assert storage.read("a") == b"mine"


@pytest.mark.parametrize("status", [409, 429, 500, 503])
@pytest.mark.parametrize("way", ["create", "replace", "write"])
def test_a_busy_store_is_asked_again(
    storage: ObjectStorage, proxy: FaultyS3, way: str, status: int
) -> None:
    codes = {409: "ConditionalRequestConflict"}
    proxy.once(Fault(status=status, code=codes.get(status, "SlowDown")), "PUT", times=3)
    getattr(storage, way)("a", [b"mine"] if way == "write" else b"mine")
    assert proxy.counted().count("PUT") == 4
    assert storage.read("a") == b"mine"


def test_a_conflict_with_a_creator_who_was_first_is_refused(
    s3: S3Server, storage: ObjectStorage, proxy: FaultyS3
) -> None:
    direct(s3, storage).create("a", b"theirs")
    proxy.once(Fault(status=409, code="ConditionalRequestConflict"), "PUT")
    with pytest.raises(FileExistsError):
        storage.create("a", b"mine")


def test_a_store_that_stays_busy_is_given_up_in_time(s3: S3Server, proxy: FaultyS3) -> None:
    storage = through(s3, proxy, **QUICK, retry_timeout="1 s")
    for status, code in ((409, "ConditionalRequestConflict"), (503, "SlowDown")):
        proxy.always(Fault(status=status, code=code))
        for call in (storage.create, storage.replace):
            begun = time.monotonic()
            with pytest.raises(OSError, match=f"HTTP {status} {code}.*retry-timeout") as failed:
                call("a", b"")
            assert failed.value.errno == errno.EIO
            assert failed.value.filename == storage.location("a")
            assert 0.5 < time.monotonic() - begun < 5
    with pytest.raises(OSError, match="HTTP 503"):
        storage.list("")
    with pytest.raises(OSError, match="HTTP 503"):
        storage.write("a", parts(2))


def test_a_store_that_is_away_is_given_up_in_time(s3: S3Server) -> None:
    with FaultyS3(s3.port) as gone:
        storage = through(s3, gone, **QUICK, retry_timeout="500 ms")
    begun = time.monotonic()
    for call in (storage.read, storage.stat, storage.list, storage.children, storage.delete):
        with pytest.raises(OSError, match=r"cannot be reached.*endpoint") as failed:
            call("a")
        assert failed.value.filename == storage.location("a")
    assert time.monotonic() - begun < 20


def test_a_slow_store_times_out(s3: S3Server, proxy: FaultyS3) -> None:
    storage = through(s3, proxy, **QUICK, retry_timeout="500 ms", read_timeout="200 ms")
    proxy.choose = lambda _: Fault(delay=1)
    with pytest.raises(TimeoutError, match="read-timeout"):
        storage.create("a", b"")


# -- reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["read", "stream"])
def test_reading_survives_connections_that_break(
    storage: ObjectStorage, proxy: FaultyS3, way: str
) -> None:
    content = b"".join(parts(2))
    storage.write("a", [content])
    proxy.once(Fault(cuts_after=3_000_000), "GET", times=4)
    found = storage.read("a") if way == "read" else b"".join(storage.stream("a"))
    assert found == content
    assert proxy.counted().count("GET") == 5


def test_a_part_is_read_to_its_end_over_connections_that_break(
    storage: ObjectStorage, proxy: FaultyS3
) -> None:
    content = b"".join(parts(2))
    storage.write("a", [content])
    proxy.once(Fault(cuts_after=1_000_000), "GET", times=3)
    assert b"".join(storage.stream("a", 1234, 9_000_000)) == content[1234:9_001_234]


def test_a_download_that_never_delivers_a_byte_is_given_up(s3: S3Server, proxy: FaultyS3) -> None:
    storage = through(s3, proxy, **QUICK, retry_timeout="500 ms")
    storage.create("a", b"x" * 1000)
    proxy.choose = lambda r: Fault(cuts_after=0) if r.method == "GET" else None
    begun = time.monotonic()
    for call in (lambda: storage.read("a"), lambda: list(storage.stream("a"))):
        with pytest.raises(OSError, match="cannot be reached"):
            call()
    assert time.monotonic() - begun < 10


def test_a_file_that_is_replaced_while_it_is_read_is_no_mixture(
    s3: S3Server, storage: ObjectStorage, proxy: FaultyS3
) -> None:
    storage.write("a", [b"1" * 4_000_000])

    def replace_and_cut(request: Request) -> Fault | None:
        proxy.choose = lambda _: None
        return Fault(
            cuts_after=2_000_000, then=lambda: direct(s3, storage).replace("a", b"2" * 4_000_000)
        )

    proxy.choose = replace_and_cut
    with pytest.raises(OSError, match="replaced while it was being read"):
        b"".join(storage.stream("a"))


# -- killed processes ---------------------------------------------------------------------------


def test_a_server_that_is_killed_during_puts_is_waited_for(s3: S3Server) -> None:
    s3.create_bucket(BUCKET)
    storage = ObjectStorage(s3.url(BUCKET, uuid.uuid4().hex, **QUICK))
    done: list[str] = []
    failures: list[BaseException] = []

    def put(me: int) -> None:
        try:
            for n in range(150):
                storage.create(f"{me}/{n}", f"{me} {n}".encode())
                storage.replace(f"{me}/last", f"{n}".encode())
                done.append(f"{me}/{n}")
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=put, args=(me,)) for me in range(3)]
    for writer in writers:
        writer.start()
    for _ in range(3):
        count = len(done)
        while len(done) < count + 20 and not failures:
            time.sleep(0.002)
        s3.kill()
        time.sleep(0.2)
        s3.start()
    for writer in writers:
        writer.join(60)
    assert failures == []
    expected = [*done, *(f"{me}/last" for me in range(3))]
    assert storage.list("") == sorted(expected)
    assert all(storage.read(path) == path.replace("/", " ").encode() for path in done)
    assert all(storage.read(f"{me}/last") == b"149" for me in range(3))
    storage.delete_tree("")


UPLOAD = """
import sys, time
from penstock.common.storage_url import StorageUrl
from penstock.storage.object_storage import ObjectStorage
def pieces():
    for n in range(40):
        yield bytes(1 << 20)
    print("begun", flush=True)
    time.sleep(60)
ObjectStorage(StorageUrl("s3", {bucket!r}, {parts!r}, {options!r})).write({path!r}, pieces())
"""


def test_what_a_killed_process_has_uploaded_is_not_visible_and_can_be_removed(
    s3: S3Server, storage: ObjectStorage
) -> None:
    path = "d/a b%20c?#é"
    storage.create("d/other", b"")
    for place in (path, "da/c"):
        program = UPLOAD.format(
            bucket=BUCKET, parts=storage.root.parts, options=dict(s3.options()), path=place
        )
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == b"begun\n"
            process.send_signal(signal.SIGKILL)
        process.wait()
    assert storage.list("") == ["d/other"]
    assert storage.children("d") == ["other"]
    assert unfinished(storage) == 2
    storage.delete_unfinished("d")
    assert unfinished(storage) == 1
    storage.delete_unfinished("")
    assert unfinished(storage) == 0
    assert storage.list("") == ["d/other"]


def unfinished(storage: ObjectStorage) -> int:
    """Ask the server how many uploads there are."""
    bucket = SignedBucket.of(storage._client)
    assert bucket is not None
    query = {"uploads": "", "prefix": storage.root.path}
    listed = bucket.request(dataclasses.replace(storage.root, parts=()), "GET", query)
    return len(re.findall(rb"<UploadId>[^<]", listed.body))


@pytest.mark.parametrize("silence", ["before the answer", "in the answer", "drip"])
def test_requests_for_uploads_heed_the_timeouts(s3: S3Server, silence: str) -> None:
    read = "100 s" if silence == "drip" else "300 ms"
    answer = "500 ms" if silence == "drip" else "100 s"
    ended = threading.Event()

    class Silent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if silence != "before the answer":
                self.send_response(200)
                self.send_header("Content-Length", "1000000")
                self.end_headers()
            while not ended.wait(0.02):
                if silence == "drip":
                    self.wfile.write(b" ")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        settings = {"read_timeout": read, "timeout": answer, "retry_timeout": "100 ms"}
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        root = s3.url(BUCKET, "a", endpoint=endpoint, **settings)
        begun = time.monotonic()
        with pytest.raises(OSError, match=r"did not answer in time.*s3://faults"):
            ObjectStorage(root).delete_unfinished("")
        assert time.monotonic() - begun < 10
        ended.set()
        server.shutdown()


def test_requests_for_uploads_wait_for_a_connection_no_longer_than_the_timeout(
    s3: S3Server,
) -> None:
    with socket.socket() as listener, ExitStack() as full:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            # Linux does not answer when the queue of a listener is full.
            waiting = full.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        settings = {"connect_timeout": "300 ms", "read_timeout": "50 s", "retry_timeout": "0 s"}
        root = s3.url(BUCKET, "a", endpoint=endpoint, **settings)
        begun = time.monotonic()
        with pytest.raises(OSError, match="did not answer in time"):
            ObjectStorage(root).delete_unfinished("")
        assert time.monotonic() - begun < 10


def test_unfinished_uploads_are_found_page_by_page(s3: S3Server, proxy: FaultyS3) -> None:
    storage = through(s3, proxy)
    uploads = [(f"{storage.root.path}/d/{n}", f"id{n}") for n in range(5)]
    aborted = []

    def answer(request: Request) -> Fault:
        if request.method == "DELETE":
            aborted.append(request.target.partition("uploadId=")[2].partition("&")[0])
            return Fault(status=404, code="NoSuchUpload")
        last = re.search("upload-id-marker=id([0-9])", request.target)
        begin = int(last[1]) + 1 if last else 0
        page = uploads[begin : begin + 2]
        rows = (f"<Upload><Key>{k}</Key><UploadId>{u}</UploadId></Upload>" for k, u in page)
        more = "true" if begin + 2 < len(uploads) else "false"
        return Fault(
            status=200,
            body=(
                f"<ListMultipartUploadsResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
                f"<IsTruncated>{more}</IsTruncated><NextKeyMarker>{page[-1][0]}</NextKeyMarker>"
                f"<NextUploadIdMarker>{page[-1][1]}</NextUploadIdMarker>{''.join(rows)}"
                "</ListMultipartUploadsResult>"
            ).encode(),
        )

    proxy.choose = answer
    storage.delete_unfinished("d")
    assert aborted == [upload for _, upload in uploads]


def test_an_upload_that_fails_is_aborted(
    s3: S3Server, storage: ObjectStorage, proxy: FaultyS3
) -> None:
    proxy.choose = lambda r: (
        Fault(status=403, code="AccessDenied") if "partNumber=2" in r.target else None
    )
    with pytest.raises(PermissionError):
        storage.write("a", parts(4))
    proxy.choose = lambda _: None
    with suppress(RuntimeError):
        storage.write("b", _failing())
    assert proxy.counted().count("DELETE uploadId") >= 2
    assert storage.list("") == []
    assert unfinished(storage) == 0


def _failing() -> Iterator[bytes]:
    yield from parts(3)
    raise RuntimeError


def test_an_upload_whose_last_answer_is_lost_is_complete(
    storage: ObjectStorage, proxy: FaultyS3
) -> None:
    def choose(request: Request) -> Fault | None:
        if request.method != "POST" or "uploadId" not in request.target:
            return None
        proxy.choose = lambda _: None
        return Fault(loses_answer=True)

    proxy.choose = choose
    storage.write("a", parts(2))
    assert storage.read("a") == b"".join(parts(2))


# -- what the user has to correct ---------------------------------------------------------------


def test_a_missing_bucket_is_named(s3: S3Server) -> None:
    storage = ObjectStorage(s3.url("no-such-bucket", "d", **QUICK, retry_timeout="1 s"))
    for call in (
        lambda: storage.create("a", b""),
        lambda: storage.replace("a", b""),
        lambda: storage.write("a", parts(2)),
        lambda: storage.read("a"),
        lambda: list(storage.stream("a")),
        lambda: storage.list(""),
        lambda: storage.children(""),
        lambda: storage.delete("a"),
        lambda: storage.delete_tree("d"),
    ):
        with pytest.raises(OSError, match="there is no bucket 'no-such-bucket'") as failed:
            call()
        assert not isinstance(failed.value, FileNotFoundError)
        assert str(failed.value.filename).startswith("s3://no-such-bucket/d")


@pytest.mark.parametrize("wrong", ["access_key_id", "secret_access_key"])
def test_wrong_credentials_are_named_and_never_shown(s3: S3Server, wrong: str) -> None:
    s3.create_bucket(BUCKET)
    storage = ObjectStorage(s3.url(BUCKET, "d", **{wrong: "0wrong0"}))
    for call in (
        lambda: storage.create("a", b""),
        lambda: storage.write("a", parts(2)),
        lambda: storage.read("a"),
        lambda: storage.list("a"),
        lambda: storage.delete("a"),
    ):
        expected = "penstock.storage.s3.access-key-id.*AWS_ACCESS_KEY_ID"
        with pytest.raises(PermissionError, match=expected) as refused:
            call()
        shown = f"{refused.value} {refused.value!r}"
        assert "0wrong0" not in shown
        assert s3.secret_key not in shown
        assert refused.value.filename == "s3://faults/d/a"
    with pytest.raises(OSError, match="cannot be removed: the store refuses the request, HTTP 40"):
        storage.delete_unfinished("")


def test_credentials_may_come_from_the_environment(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.create_bucket(BUCKET)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    root = s3.url(BUCKET, uuid.uuid4().hex).with_options({"s3.max-backoff": "1 s"})
    storage = ObjectStorage(root)
    storage.create("a", b"x")
    storage.delete_unfinished("")
    assert direct(s3, storage).read("a") == b"x"


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("acess-key-id", "x", "unknown; correct or remove it"),
        ("acess_key_id", "x", "unknown; correct or remove it"),
        ("bucket", "x", "the URL names the bucket"),
        ("retry-timeout", "soon", "needs a duration such as"),
        ("read-timeout", "soon", "needs a duration such as"),
    ],
)
def test_a_wrong_setting_is_named(s3: S3Server, key: str, value: str, reason: str) -> None:
    root = s3.url(BUCKET).with_options({f"s3.{key}": value})
    with pytest.raises(StorageSettingsError, match=f"penstock.storage.s3.{key}: {reason}"):
        ObjectStorage(root)
    with pytest.raises(StorageSettingsError, match="as boolean; correct the value"):
        ObjectStorage(s3.url(BUCKET, allow_http="perhaps"))


def test_a_missing_library_is_named(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(RuntimeSetupError, match=r"pip install .*penstock\[s3\]"):
        ObjectStorage(s3.url("another", max_backoff="3 s"))


def test_names_that_no_object_can_have_are_refused(storage: ObjectStorage) -> None:
    for name in ("new\nline", "nul\0", "lone \udc80"):
        with pytest.raises(OSError, match="name of an object") as refused:
            storage.create(name, b"")
        assert refused.value.errno == errno.EINVAL


def test_keys_of_other_programs_are_no_files(storage: ObjectStorage, proxy: FaultyS3) -> None:
    storage.create("d/sub/a", b"")
    marked = SignedBucket.of(storage._client)
    assert marked is not None
    with suppress(RefusedError):
        directory = dataclasses.replace(storage.root, parts=(*storage.root.parts, "d", "sub", ""))
        marked.request(directory, "PUT", {})
    assert storage.list("") == ["d/sub/a"]
    assert storage.children("d") == ["sub"]
    proxy.choose = lambda _: Fault(
        body=b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a//b</Key>"
        b"<LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>1</Size></Contents>"
        b"</ListBucketResult>"
    )
    with pytest.raises(OSError, match='"a//b" contained empty path segment'):
        storage.list("")


def test_a_process_that_was_forked_after_a_store_was_used_is_refused(
    storage: ObjectStorage,
) -> None:
    storage.create("a", b"")
    pid = os.fork()
    if pid == 0:
        refused = 1
        with suppress(RuntimeError):
            storage.read("a")
            refused = 0
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


def test_storages_of_one_bucket_share_a_client(s3: S3Server) -> None:
    begun = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    storages = [ObjectStorage(s3.url(BUCKET, f"{n}")) for n in range(1000)]
    assert len({id(storage._client) for storage in storages}) == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - begun < 1
