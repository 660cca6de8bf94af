"""Names of PyFlink's API that are not here yet, and the sentence that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

__all__ = ["METHODS", "NAMES", "AsksForPyFlink", "not_yet"]

NAMES = frozenset(
    [
        "CustomStateBackend",
        "PredefinedOptions",
        "CustomCheckpointStorage",
        "TimerService",
        "TimeDomain",
        "WindowedStream",
        "WindowFunction",
        "ProcessWindowFunction",
        "Window",
        "TimeWindow",
        "CountWindow",
        "GlobalWindow",
        "WindowAssigner",
        "MergingWindowAssigner",
        "Trigger",
        "TriggerResult",
        "Partitioner",
        "AsyncDataStream",
        "AsyncFunction",
        "AsyncRetryPredicate",
        "AsyncRetryStrategy",
        "SlotSharingGroup",
        "MemorySize",
        "SourceFunction",
        "SinkFunction",
    ]
)
"""Of the module `pyflink.datastream`."""

METHODS = frozenset(
    [
        "window",
        "window_all",
        "count_window",
        "output",
        "partition_custom",
        "project",
        "add_sink",
        "add_source",
        "create_input",
        "add_jars",
        "add_classpaths",
        "add_python_file",
        "add_python_archive",
        "set_python_requirements",
        "set_python_executable",
        "get_config",
        "get_buffer_timeout",
        "set_uid_hash",
        "cache",
        "enable_changelog_state_backend",
        "is_changelog_state_backend_enabled",
        "set_predefined_options",
        "get_predefined_options",
        "set_options",
        "get_options",
        "set_number_of_transfer_threads",
        "get_number_of_transfer_threads",
    ]
)
"""Of environments, streams, contexts and state backends."""


def not_yet(name: str) -> str:
    """Return what to say when somebody asks for such a name."""
    return f"{name} is not in this version of penstock; docs/pyflink.md says what is"


class AsksForPyFlink:
    """Answers for methods that PyFlink has and penstock has not."""

    if not TYPE_CHECKING:  # a type checker shall find typos

        def __getattr__(self, name: str) -> NoReturn:
            known = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(not_yet(name) if name in METHODS else known, name=name, obj=self)
