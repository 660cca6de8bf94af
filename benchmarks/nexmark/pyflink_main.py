"""Run a query on PyFlink: by PyFlink's own Python, so this imports nothing of ours but the query.

    python pyflink_main.py SPEC RESULT

First the small input, whose rows are brought home, then the large one, whose rows are thrown away.
Its time runs from the moment at which the last subtask has opened its first function to the end of
the job, so that starting Flink's cluster is not in it. Both share a JVM, which is warm the second
time.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyflink.common import Configuration, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.base import Sink
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
from pyflink.java_gateway import get_gateway

from benchmarks.nexmark import queries


def environment(parallelism: int) -> StreamExecutionEnvironment:
    config = Configuration()
    config.set_string("python.execution-mode", "thread")
    config.set_string("state.backend.type", "hashmap")
    config.set_string("restart-strategy.type", "none")
    config.set_string("pipeline.object-reuse", "true")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_python_executable(sys.executable)
    env.set_parallelism(parallelism)
    return env


def lines_of(env: StreamExecutionEnvironment, path: str) -> Any:
    """Lines of one file, dealt out to all subtasks: of several files Flink keeps no order."""
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), path).build()
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "events").rebalance()


def noting(directory: Path) -> type:
    """The first function of every query, made to note when it is opened."""

    class Noting(queries.OfKind):
        def open(self, runtime_context: Any) -> None:
            Path(directory, str(uuid.uuid4())).write_text(str(time.time()))

    return Noting


def check(query: str, given: dict[str, Any]) -> list[Any]:
    env = environment(given["check_parallelism"])
    stream = queries.QUERIES[query](lines_of(env, given["check"]))
    with stream.execute_and_collect() as rows:
        return [list(row) for row in rows]


def timed(query: str, given: dict[str, Any]) -> float:
    env = environment(given["parallelism"])
    discard = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        with patch.object(queries, "OfKind", noting(Path(directory))):
            stream = queries.QUERIES[query](lines_of(env, given["events"]))
        stream.sink_to(Sink(discard()))
        env.execute(query)
        ended = time.time()
        return ended - max(float(path.read_text()) for path in Path(directory).iterdir())


def main() -> None:
    spec, result = map(Path, sys.argv[1:3])
    given = json.loads(spec.read_text())
    rows = check(given["query"], given)
    answer = {"rows": rows, "seconds": timed(given["query"], given) if given["events"] else None}
    result.write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
