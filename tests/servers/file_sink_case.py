"""File sinks that write to a real S3 server, for the contract of sinks."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from penstock.common import Row, Types
from penstock.common.serialization import Encoder
from penstock.common.storage_url import StorageUrl
from penstock.connectors.files.bucket_assigner import BucketAssigner
from penstock.connectors.files.rolling_policy import RollingPolicy
from penstock.connectors.files.sink import FileSink
from penstock.connectors.formats.columnar.writers import ParquetBulkWriters
from penstock.storage.clients.s3_uploads import MultipartUploads
from penstock.storage.storages import storage_at
from penstock.testing.servers.s3_server import S3Server
from tests.contracts.sink_harness import Case

BUCKET = "files"
ROWS = Types.ROW_NAMED(["text"], [Types.STRING()])


def finished(place: StorageUrl) -> list[str]:
    """Final objects in the order in which their writers began them."""
    found = [name for name in storage_at(place).list("") if not name.startswith(".staging-")]
    return sorted(found, key=lambda name: (name[:-2], int(name.rpartition("-")[2])))


def leftovers(place: StorageUrl) -> list[Path]:
    """Everything else: hidden objects, and unfinished uploads."""
    hidden = [name for name in storage_at(place).list("") if name.startswith(".staging-")]
    found = [Path(name) for name in hidden]
    uploads = MultipartUploads.of(place)
    if uploads is not None:
        found += [Path(f"upload of {url}") for url, _ in uploads.begun(f"{place.path}/")]
    return found


def lines_in(place: StorageUrl) -> list[str]:
    storage = storage_at(place)
    return [line for name in finished(place) for line in storage.read(name).decode().splitlines()]


def rows_in(place: StorageUrl) -> list[str]:
    storage = storage_at(place)
    tables = (pq.read_table(io.BytesIO(storage.read(name))) for name in finished(place))
    return [row["text"] for table in tables for row in table.to_pylist()]


def row_sink(place: StorageUrl, policy: RollingPolicy) -> FileSink:
    builder = FileSink.for_row_format(str(place), Encoder.simple_string_encoder())
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    return builder.with_rolling_policy(policy).build().with_storage_options(place.options)


def row_case(place: StorageUrl, policy: RollingPolicy) -> Case:
    return Case(row_sink(place, policy), lambda: lines_in(place), lambda: leftovers(place))


def place_in(s3: S3Server, directory: Path, **settings: str) -> StorageUrl:
    s3.create_bucket(BUCKET)
    return s3.url(BUCKET, directory.name, **settings)


def rolled_case(s3: S3Server, directory: Path) -> Case:
    return row_case(place_in(s3, directory), RollingPolicy.on_checkpoint_rolling_policy())


def growing_case(s3: S3Server, directory: Path) -> Case:
    """Parts of about 60 bytes, which outlive checkpoints."""
    policy = RollingPolicy.default_rolling_policy(part_size=60)
    return row_case(place_in(s3, directory), policy)


def without_uploads_case(s3: S3Server, directory: Path) -> Case:
    """As with credentials that only the client knows: the store copies finished objects."""
    policy = RollingPolicy.default_rolling_policy(part_size=60)
    return row_case(place_in(s3, directory, proxy_excludes="none.example"), policy)


def parquet_sink(place: StorageUrl) -> FileSink:
    builder = FileSink.for_bulk_format(str(place), ParquetBulkWriters.for_row_type(ROWS))
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    return builder.build().with_storage_options(place.options)


def parquet_case(s3: S3Server, directory: Path) -> Case:
    place = place_in(s3, directory)
    shown: Callable[[], list[str]] = lambda: rows_in(place)  # noqa: E731
    return Case(parquet_sink(place), shown, lambda: leftovers(place), Row, ROWS)
