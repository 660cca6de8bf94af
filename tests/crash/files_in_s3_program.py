"""A job whose files, checkpoints and results are in S3; the test next to it kills it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec

from penstock.common import Configuration, Encoder, Row, Types, WatermarkStrategy
from penstock.common.storage_url import StorageUrl
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    RollingPolicy,
    StreamFormat,
)
from penstock.datastream.formats.parquet import ParquetBulkWriters
from penstock.testing import run_inline

JOB = "files-in-s3"
BUCKET = "killed"
FILES, LINES = 12, 250
ROW = Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()])


class Variant(msgspec.Struct, frozen=True):
    """Where the job works, and how it reaches the store."""

    directory: str
    options: dict[str, str]
    spark: bool = False

    def place(self, *names: str) -> StorageUrl:
        """Return a place in the store."""
        return StorageUrl("s3", BUCKET, names, self.options)


def _slowly(line: str) -> Row:
    time.sleep(0.001)
    return Row(n=int(line.partition(" ")[0]), text=line)


def main(path: Path) -> int:
    """Run the job to its end."""
    variant = msgspec.json.decode(path.read_bytes(), type=Variant)
    settings = {
        "penstock.job-id": JOB,
        "execution.checkpointing.dir": str(variant.place("checkpoints")),
        "execution.checkpointing.interval": "60 ms",
        "penstock.work-dir": str(Path(variant.directory, "work")),
        "penstock.micro-batch.max-records": "60",
        "penstock.micro-batch.initial-records": "60",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "20",
        "restart-strategy.fixed-delay.delay": "10 ms",
        **{f"penstock.storage.{name}": value for name, value in variant.options.items()},
    }
    configuration = Configuration.from_dict(settings)
    env = run_inline(StreamExecutionEnvironment.get_execution_environment(configuration))
    env.set_parallelism(2)
    source = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(variant.place("in"))
    ).build()
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").uid("lines")
    rows = lines.map(_slowly, ROW).uid("rows")
    growing = (
        FileSink.for_row_format(str(variant.place("lines")), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=8_000))
        .build()
    )
    parquet = (
        FileSink.for_bulk_format(
            str(variant.place("parquet")), ParquetBulkWriters.for_row_type(ROW)
        )
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )
    rows.map(lambda row: row["text"], Types.STRING()).uid("texts").sink_to(growing).uid("growing")
    rows.sink_to(parquet).uid("parquet")
    env.execute(JOB)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
