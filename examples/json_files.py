"""JSON files in, JSON files out: one object per line.

    penstock run examples/json_files.py FROM TO

FROM has lines such as {"id": 1, "item": "tea", "price": 2.5}. Files appear in TO complete, when
a checkpoint has completed or, in this bounded job without checkpoints, when the input has ended.
"""

import sys

from penstock.common import Row, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    OutputFileConfig,
)
from penstock.datastream.formats.json import (
    JsonBulkWriters,
    JsonReaderFormat,
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)

ORDER = Types.ROW_NAMED(["id", "item", "price"], [Types.LONG(), Types.STRING(), Types.DOUBLE()])
TOTAL = Types.ROW_NAMED(["item", "total"], [Types.STRING(), Types.DOUBLE()])


def add(left: Row, right: Row) -> Row:
    return Row(item=left["item"], total=left["total"] + right["total"])


def main(source: str, target: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    read = JsonRowDeserializationSchema.builder().type_info(ORDER).build()
    files = FileSource.for_record_stream_format(JsonReaderFormat.for_schema(read), source).build()
    write = JsonRowSerializationSchema.builder().with_type_info(TOTAL).build()
    totals = (
        FileSink.for_bulk_format(target, JsonBulkWriters.for_schema(write))
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_output_file_config(OutputFileConfig("totals", ".json"))
        .build()
    )
    (
        env.from_source(files, WatermarkStrategy.no_watermarks(), "orders")
        .map(lambda order: Row(item=order["item"], total=order["price"]), TOTAL)
        .key_by(lambda row: row["item"], Types.STRING())
        .reduce(add)
        .sink_to(totals)
    )
    env.execute("json files")


if __name__ == "__main__":
    main(*sys.argv[1:])
