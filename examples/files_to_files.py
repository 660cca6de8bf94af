"""Read a directory of text files, keep the long lines, write them into files.

    python examples/files_to_files.py FROM TO

The files of TO appear at the end of the input, complete and all at once; until then they are in a
hidden directory there.
"""

import sys
import tempfile
from pathlib import Path

from penstock.common import Encoder, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    OutputFileConfig,
    StreamFormat,
)


def main(source: Path, target: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    texts = FileSource.for_record_stream_format(StreamFormat.text_line_format(), source).build()
    files = (
        FileSink.for_row_format(target, Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_output_file_config(OutputFileConfig("long", ".txt"))
        .build()
    )
    (
        env.from_source(texts, WatermarkStrategy.no_watermarks(), "texts")
        .filter(lambda line: len(line) > 20)
        .map(str.upper, Types.STRING())
        .sink_to(files)
    )
    env.execute("files to files")
    for path in sorted(target.glob("long-*.txt")):
        print(f"{path.name.split('-')[0]}: {len(path.read_text().splitlines())} lines")


def with_texts_of_its_own() -> None:
    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory) / "from", Path(directory) / "to"
        source.mkdir()
        for name in ("a.txt", "b.txt"):
            (source / name).write_text("short\na line that is long enough\n" * 3)
        main(source, target)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        with_texts_of_its_own()
