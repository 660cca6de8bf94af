"""Names of PyFlink's API that are not here, and the sentence that says what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

__all__ = ["METHODS", "NAMES", "AsksForPyFlink", "not_yet"]

_COMING = "is not in this version of penstock; docs/pyflink.md says what is"
_SOURCES = "wraps a Java source: use from_source() with a source of penstock.datastream.connectors"
_SINKS = "wraps a Java sink: use sink_to() with a sink of penstock.datastream.connectors"
_ROCKSDB = "tunes Flink's RocksDB: penstock's has no such setting"

NAMES: Mapping[str, str] = {
    "CustomStateBackend": "names a Java class: set state.backend.type to hashmap or rocksdb",
    "CustomCheckpointStorage": "names a Java class: set execution.checkpointing.dir",
    "PredefinedOptions": _ROCKSDB,
    "SourceFunction": _SOURCES,
    "SinkFunction": _SINKS,
}
"""Of the module `pyflink.datastream`."""

METHODS: Mapping[str, str] = {
    **dict.fromkeys(["output"], _COMING),
    "add_source": _SOURCES,
    "add_sink": _SINKS,
    "register_cached_file": (
        "has no reader in PyFlink's functions either: put the file where all workers see it, or "
        "ship it with spark.files"
    ),
    "add_python_archive": (
        "would unpack it into a directory that Spark's workers do not run in: ship it with "
        "spark.archives and find it by SparkFiles.get()"
    ),
    "set_python_requirements": (
        "would install packages in every worker: install them where the workers run, or ship a "
        "packed environment with spark.archives"
    ),
    "set_python_executable": (
        "would be too late for workers that run: set PYSPARK_PYTHON before the program starts, "
        "to the same version of Python as the driver's"
    ),
    "set_uid_hash": "names a step by Flink's own hash: use uid()",
    **dict.fromkeys(
        [
            "set_predefined_options",
            "get_predefined_options",
            "set_options",
            "get_options",
            "set_number_of_transfer_threads",
            "get_number_of_transfer_threads",
        ],
        _ROCKSDB,
    ),
}
"""Of environments, streams, contexts and state backends."""


def not_yet(name: str, reasons: Mapping[str, str]) -> str:
    """Return what to say when somebody asks for such a name."""
    return f"{name} {reasons[name]}"


class AsksForPyFlink:
    """Answers for methods that PyFlink has and penstock has not."""

    if not TYPE_CHECKING:  # a type checker shall find typos

        def __getattr__(self, name: str) -> NoReturn:
            known = f"{type(self).__name__!r} object has no attribute {name!r}"
            said = not_yet(name, METHODS) if name in METHODS else known
            raise AttributeError(said, name=name, obj=self)
