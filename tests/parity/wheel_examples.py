"""The DataStream examples in PyFlink's wheel: where they lie, and which can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.errors import MissingServerError
from penstock.testing.servers.cache import servers_directory
from tests.parity.parity_common import HERE, strip_subtask

VERSION = "2.3.0"

EXAMPLES = (
    "basic_operations",
    "event_time_timer",
    "process_json_data",
    "state_access",
    "windowing/session_with_dynamic_gap_window",
    "windowing/session_with_gap_window",
    "windowing/sliding_time_window",
    "windowing/tumbling_count_window",
    "windowing/tumbling_time_window",
    "word_count",
)
"""Those that need no server and come to an end."""

ENDLESS = {"streaming_word_count": 12, "asyncio/remote_model_inference": 30}
"""Those that read random rows without end, and after how many lines they have shown enough."""

SERVERS = (
    "connectors/elasticsearch",
    "connectors/kafka_avro_format",
    "connectors/kafka_bytearray_format",
    "connectors/kafka_csv_format",
    "connectors/kafka_json_format",
    "connectors/kafka_row_field_extractor_example",
    "connectors/pulsar",
)
"""Those that expect a server at a fixed address, and jars."""

# What Python packages of PyFlink's log, where an example has logs shown on stdout.
_LOGGED = ("Using Any for unsupported type", "No module named google", "PYFLINK_CYTHON_ENABLED")


@dataclass(frozen=True)
class ExampleFiles:
    """What `make setup-pyflink-examples` fetches, whether it did so or not."""

    home: Path

    @classmethod
    def in_cache(cls) -> ExampleFiles:
        return cls(servers_directory() / f"pyflink-examples-{VERSION}")

    def required(self) -> ExampleFiles:
        """Return these files, or raise an error that names the way to get them."""
        if not self.home.is_dir():
            what, remedy = "PyFlink's examples", "run `make setup-pyflink-examples`"
            raise MissingServerError(what, f"files in {self.home}", remedy)
        return self

    def path(self, example: str) -> Path:
        return self.home / f"{example}.py"

    def names(self) -> list[str]:
        """All there are, for a check that none is left out."""
        paths = (path.relative_to(self.home) for path in self.home.rglob("*.py"))
        return sorted(path.with_suffix("").as_posix() for path in paths)


def expected_path(example: str) -> Path:
    return HERE / "expected_examples" / f"{example.rpartition('/')[2]}.txt"


def lines_of(output: str) -> list[str]:
    """What an example printed as sorted lines, without subtasks and logs."""
    lines = (strip_subtask(line) for line in output.split("\n") if line)
    return sorted(line for line in lines if not line.startswith(_LOGGED))
