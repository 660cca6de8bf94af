"""FileSource of text lines to a FileSink; the sink's files are read back and printed."""
import pathlib
import sys
import tempfile

from pyflink.common import Encoder, Types, WatermarkStrategy
from pyflink.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, FileSource, StreamFormat

out = tempfile.mkdtemp()
env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
env.set_parallelism(1)
source = FileSource.for_record_stream_format(
    StreamFormat.text_line_format(), sys.argv[1]
).build()
sink = FileSink.for_row_format(out, Encoder.simple_string_encoder()).build()
lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
lines.map(lambda s: s.upper(), output_type=Types.STRING()).sink_to(sink)
(
    lines.flat_map(str.split, output_type=Types.STRING())
    .map(lambda w: (w, 1), output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
    .key_by(lambda t: t[0], key_type=Types.STRING())
    .sum(1)
    .sink_to(sink)
)
env.execute("files")

for path in sorted(pathlib.Path(out).rglob("*")):
    if path.is_file() and not path.name.startswith("."):
        assert path.name.startswith("part-"), path.name
        for line in path.read_text().splitlines():
            print("line:", line)
