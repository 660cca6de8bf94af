"""Errors for names that PyFlink has and penstock does not, with what to use instead."""

from collections.abc import Mapping

from penstock.errors.base import PenstockError

_TABLES = (
    "of PyFlink's Table API it has only datagen tables, as sources of streams; use the DataStream "
    "API, or pass a Spark DataFrame to env.from_dataframe()"
)
_NO_JAVA = "its jobs run on Spark, and there are no Java objects of Flink to reach"
_CONNECTOR = (
    "it wraps Java; write a TwoPhaseSink or an acknowledging source of your own, or let Spark read "
    "with env.from_stream()"
)
_SOURCE = (
    "it wraps a Java source; use from_source() with a source of penstock.datastream.connectors"
)
_SINK = "it wraps a Java sink; use sink_to() with a sink of penstock.datastream.connectors"
_FILE_SIZES = "the rolling policy of a FileSink decides how large its files get"
_PREPARES = "it prepares records for a Java sink; the sinks of penstock do not need it"
_INTERNAL = "it is internal to PyFlink, and no program needs it"

INSTEAD: Mapping[str, str] = {
    # Modules, by their dotted names.
    "table": _TABLES,
    "java_gateway": _NO_JAVA,
    "util": _NO_JAVA,
    "common.io": _SOURCE,
    "common.input_dependency_constraint": _INTERNAL,
    "datastream.connectors.jdbc": (
        "it wraps Java; PostgresSink of penstock.datastream.connectors.postgres writes to a "
        "database exactly once"
    ),
    **dict.fromkeys(
        [
            f"datastream.connectors.{name}"
            for name in ("cassandra", "elasticsearch", "kinesis", "pulsar", "rabbitmq")
        ],
        _CONNECTOR,
    ),
    "datastream.connectors.dynamic_kafka": (
        "it wraps Java; KafkaSource discovers topics with set_topic_pattern()"
    ),
    "datastream.connectors.hybrid_source": "it wraps Java; use union() to combine sources",
    # Classes and functions of modules.
    "FlinkKafkaConsumer": "PyFlink has deprecated it; use KafkaSource",
    "FlinkKafkaProducer": "PyFlink has deprecated it; use KafkaSink",
    "Semantic": "PyFlink has deprecated it; use DeliveryGuarantee",
    "StreamingFileSink": "PyFlink has deprecated it; use FileSink",
    "FileCompactor": _FILE_SIZES,
    "FileCompactStrategy": _FILE_SIZES,
    "StreamTransformer": _PREPARES,
    "SupportsPreprocessing": _PREPARES,
    "SourceFunction": _SOURCE,
    "SinkFunction": _SINK,
    "CustomStateBackend": "it names a Java class; set state.backend.type to hashmap or rocksdb",
    "CustomCheckpointStorage": "it names a Java class; set execution.checkpointing.dir",
    "AssignerWithPeriodicWatermarksWrapper": _INTERNAL,
    "InputDependencyConstraint": _INTERNAL,
    # Of objects.
    "add_source": _SOURCE,
    "add_sink": _SINK,
    "enable_compact": _FILE_SIZES,
    "disable_compact": _FILE_SIZES,
    "get_transformer": _PREPARES,
    "set_any_property_name": (
        "the rest of a line has no type; name its columns, or read lines and split them"
    ),
    "register_cached_file": (
        "PyFlink's functions have no reader for it either; put the file where all workers see it, "
        "or ship it with spark.files"
    ),
    "add_python_archive": (
        "Spark's workers do not run in the directory it would be unpacked in; ship it with "
        "spark.archives and find it by SparkFiles.get()"
    ),
    "set_python_requirements": (
        "it would install packages in every worker; install them where the workers run, or ship a "
        "packed environment with spark.archives"
    ),
    "set_python_executable": (
        "it would be too late for workers that run; set PYSPARK_PYTHON before the program starts, "
        "to the same version of Python as the driver's"
    ),
    "set_uid_hash": "it names a step by Flink's own hash; use uid()",
    **dict.fromkeys(
        ["AccumulateType", "need_conversion", "to_internal_type", "from_internal_type"], _INTERNAL
    ),
}


def instead_of_module(name: str) -> str | None:
    """Return what to use instead of a module or of the package it is in; None if not listed."""
    parts = name.split(".")[1:]
    dotted = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((INSTEAD[module] for module in dotted if module in INSTEAD), None)


class NoPyFlinkModuleError(PenstockError, ModuleNotFoundError):
    """A program imports a module of PyFlink that penstock does not have."""

    name: str | None

    def __str__(self) -> str:
        instead = instead_of_module(str(self.name)) or "docs/pyflink.md lists what is"
        return f"{self.name} is not in penstock: {instead}"


class PyFlinkNotInstalledError(PenstockError):
    """A program that imports pyflink runs without the option for it."""

    program: str
    template = (
        "{program} imports pyflink, which is not installed here: run it with --pyflink, which "
        "makes imports of pyflink import penstock, or change its imports to penstock"
    )


class NoPyFlinkNameError(PenstockError):
    """A program uses a class that PyFlink has and penstock has not; importing it is no error."""

    name: str
    is_permanent = True

    def __str__(self) -> str:
        return f"{self.name} is not in penstock: {INSTEAD[self.name]}"


class NoPyFlinkMethodError(PenstockError, AttributeError):
    """A program uses an attribute of an object that only PyFlink's class has."""

    owner: str
    name: str
    is_permanent = True

    def __str__(self) -> str:
        return f"{self.owner}.{self.name} is not in penstock: {INSTEAD[str(self.name)]}"


class NoTableApiError(PenstockError, AttributeError):
    """A program uses a part of PyFlink's Table API that penstock does not have."""

    asked_for: str
    template = "{asked_for} is not in penstock: " + _TABLES
