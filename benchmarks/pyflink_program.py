"""The count as a PyFlink job: run by PyFlink's own Python, so it imports nothing of ours.

    python pyflink_program.py WORDS_DIRECTORY PARALLELISM CHECK_OR_TIME RESULT

`check` brings the counts home. `time` throws them away; each subtask notes the clock every so many
records and leaves its notes in a file when it closes.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.base import Sink
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
from pyflink.datastream.functions import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.java_gateway import get_gateway

CHECKPOINT_INTERVAL_MS = 10_000
RECORDS_PER_NOTE = 250


class Count(KeyedProcessFunction):  # type: ignore[misc]
    """Count the records of each key and hand on every update."""

    def __init__(self, notes_directory: str) -> None:
        self._directory = notes_directory

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))
        self._records = 0
        self._times: list[float] = []

    def process_element(self, value: str, ctx: Any) -> Iterator[tuple[str, int]]:
        seen = (self._seen.value() or 0) + 1
        self._seen.update(seen)
        self._records += 1
        if self._records % RECORDS_PER_NOTE == 0:
            self._times.append(time.time())
        yield value, seen

    def close(self) -> None:
        notes = {"records": self._records, "times": self._times, "every": RECORDS_PER_NOTE}
        Path(self._directory, f"{uuid.uuid4()}.json").write_text(json.dumps(notes))


def environment(parallelism: int, directory: str) -> StreamExecutionEnvironment:
    config = Configuration()
    config.set_string("python.execution-mode", "thread")
    config.set_string("state.backend.type", "hashmap")
    config.set_string("restart-strategy.type", "none")
    config.set_string("execution.checkpointing.dir", Path(directory, "checkpoints").as_uri())
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_python_executable(sys.executable)
    env.set_parallelism(parallelism)
    env.enable_checkpointing(CHECKPOINT_INTERVAL_MS)
    return env


def updates(env: StreamExecutionEnvironment, words_directory: str, notes: Path) -> Any:
    lines = StreamFormat.text_line_format()
    source = FileSource.for_record_stream_format(lines, words_directory).build()
    words = env.from_source(source, WatermarkStrategy.no_watermarks(), "words")
    return words.key_by(lambda word: word, key_type=Types.STRING()).process(
        Count(str(notes)), output_type=Types.TUPLE([Types.STRING(), Types.LONG()])
    )


def check(stream: Any) -> dict[str, Any]:
    counts: dict[str, int] = {}
    emitted = 0
    with stream.execute_and_collect() as results:
        for word, seen in results:
            counts[word] = max(seen, counts.get(word, 0))
            emitted += 1
    return {"counts": counts, "emitted": emitted}


def timed(env: StreamExecutionEnvironment, stream: Any, notes: Path) -> dict[str, Any]:
    discard = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink
    stream.sink_to(Sink(discard()))
    env.execute("count per key")
    return {"notes": [json.loads(path.read_text()) for path in sorted(notes.iterdir())]}


def main() -> None:
    words, parallelism, mode, result = sys.argv[1:5]
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        notes = Path(directory, "notes")
        notes.mkdir()
        env = environment(int(parallelism), directory)
        stream = updates(env, words, notes)
        answer = check(stream) if mode == "check" else timed(env, stream, notes)
        Path(result).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
