import pickle
from collections.abc import Iterator

import pytest

from penstock import errors
from penstock.common import Types
from penstock.errors import MethodCall, PenstockError, TypeMismatchError, UserFunctionError

EXAMPLES: dict[str, tuple[object, ...]] = {
    "BadCursorError": ("x",),
    "BadSavepointContentError": ("/a", ("operator 'count': why", "why else")),
    "InFlightDataError": ("/jobs/count/chk-7", ("'count'",)),
    "SavepointBeingWrittenError": ("/a",),
    "SavepointExistsError": ("/a",),
    "DisappearedSnapshotError": ("/jobs/count/chk-7",),
    "ExistingFileError": ("/a.csv",),
    "IncomparableSnapshotsError": ("/a", "/b", "count", "max parallelism", "128", "256"),
    "KeyNotOfTypeError": ("x", "Long", "why"),
    "NoCheckpointError": ("count",),
    "NotASnapshotError": ("/a",),
    "StaleStateError": (7.5, 5.0),
    "StateNotQueryableError": ("count", "seen"),
    "StateOptionError": ("stateVarName", "why"),
    "StateUnavailableError": ("count", "why"),
    "StateReadError": ("/a", "why"),
    "UnknownCheckpointError": ("count", 7, (5, 6)),
    "UnknownOperatorError": ("/jobs/count/chk-7", "mine", ("u (count)",)),
    "UnknownStateError": ("count", "mine", ("a", "b")),
    "InvalidProgramError": ("a.py", "why"),
    "PlanFailedError": ("a.py", "why"),
    "ProcessNotStartedError": ("orders", "why"),
    "ProgramFailedError": ("orders", "why", "the end"),
    "RestartRefusedError": ("orders", "why"),
    "AcknowledgedRecordsError": ("record 3 of attempt a1", "record 9 of attempt a1"),
    "LostReceivedRecordsError": ("/a", "why"),
    "MissingStreamError": ("ORDERS", "nats://host:4222"),
    "NatsConnectionError": ("nats://host:4222", "refused"),
    "DifferentStreamError": ("ORDERS", "why"),
    "UndecodableMessageError": (b"{", "why"),
    "UnsuitableConsumerError": ("ORDERS", "count", "why"),
    "AmbiguousJobError": ("/jobs", "count", ("count-1", "count-2")),
    "BadCheckpointError": (7, "why", 6),
    "CheckpointFailedError": (7, "why"),
    "NonRestoredStateError": ("/savepoint", ("'count' (uid 1)",)),
    "RestoreMismatchError": ("step", "/savepoint", "why"),
    "TooManyFailedCheckpointsError": (2, 7, "why"),
    "UncommittedOutputError": ("orders", 7, 2),
    "CorruptJournalError": ("/jobs/count/journal/000000000001", "why"),
    "CorruptMetadataError": ("/a", "why"),
    "FencedError": ("count", "a1", "a2"),
    "JobAlreadyRunningError": ("count", "host", 7, "12:00:00"),
    "UnknownJobError": ("/jobs", "count", ("other",)),
    "ChangedFileError": ("/in/a", "it had 100 bytes and has 4"),
    "InputTooLargeError": ("a line of file /in/a", 4096, "penstock.source.max-record-size"),
    "CommitFailedError": ("step", "unknown", 3, "why"),
    "ConfigurationFileError": ("/conf/config.yaml", 3, "why"),
    "CorruptIngestionLogError": ("/a", 7, "why"),
    "CorruptSegmentError": ("/a", "why"),
    "CorruptStagedRecordsError": ("/a", "why"),
    "CorruptStateError": ("/a", "why"),
    "UnknownChannelError": ("a -> c", ["a -> b"]),
    "DuplicateUidError": ("mine", "a.py:1", "a.py:2"),
    "JobCancelledError": ("job",),
    "KafkaUnavailableError": ("localhost:9092", 60.0, "refused"),
    "LockedIngestionLogError": ("/a",),
    "MissingIngestionDirectoryError": ("lines", "an ingestion log", "s3://bucket/job"),
    "IncompleteKafkaCheckpointError": (7, 1, 2),
    "KafkaDeliveryError": ("topic", b"key", "why"),
    "KafkaFencedError": ("prefix-job-step", "why"),
    "KafkaRecordError": ("value", "text", "why"),
    "KafkaSinkRefusedError": ("a transaction", "host:9092", "why", "what to do"),
    "KafkaUnreachableError": ("a transaction", "host:9092", "why"),
    "LostKafkaMarkerError": ("group", "topic", 7, 3),
    "LostPendingFileError": ("/a", "/b"),
    "LostPreparedRowsError": ("penstock-1", "orders", "/a"),
    "LostReceiverError": ("collect",),
    "LostRecordsError": ("orders", 3, 10, 20, 30),
    "LostStagedFileError": ("/a", 3, 2),
    "MicroBatchFailedError": ("stage", 7, 3, "why"),
    "MissingOffsetsError": ("group", ("orders-0",)),
    "MissingPathError": ("/a",),
    "MissingTopicError": (("topic 'orders'",), "localhost:9092"),
    "UndecodableRecordError": ("orders", 3, 7, b"{", "why"),
    "MissingServerError": ("Kafka", "broker in /a", "run `make setup-kafka`"),
    "ServerNotReadyError": ("Kafka", "ended with 1", "why"),
    "UnwritablePathError": ("/a", "Not a directory"),
    "RemotePathError": ("ftp://host/a",),
    "LocalStateDirFullError": ("/a", "why"),
    "MissingOnHostError": ("numbers", "/data/in", "worker-2"),
    "ServerAddressError": ("localhost", 8081, "Address already in use"),
    "TokensFileError": ("/tokens", "it has no token"),
    "UnsharedWorkDirError": ("/work", "worker-2"),
    "StateElsewhereError": ("/a/b.delta",),
    "UnsharedHostError": ("worker-2", "/work/a1"),
    "UnsafeLocalStateDirError": ("/a", "why"),
    "DifferentProgramError": ("count", "other.py", "no uid is the same"),
    "PickledSnapshotError": ("/a", ("state 'x' of step 'y'",)),
    "StoppedJobError": ("count", "/savepoint", "penstock run"),
    "StorageSettingsError": ("penstock.storage.s3.acess-key-id", "unknown; correct or remove it"),
    "UnusableDirectoryError": ("execution.checkpointing.dir", "/a", "Not a directory"),
    "PortInUseError": ("spark.driver.port", 4040),
    "PyFlinkNotInstalledError": ("job.py",),
    "OperatorStateTooLargeError": ("step", "state", 10, 5),
    "OperatorStateTypeMismatchError": ("f1", lambda: None, Types.INT(), "step", "state"),
    "NoPyFlinkMethodError": ("DataStream", "set_uid_hash"),
    "NoPyFlinkModuleError": ("penstock.common.io",),
    "NoPyFlinkNameError": ("FlinkKafkaConsumer",),
    "NoTableApiError": ("Table.select",),
    "NotASavepointError": ("/a", "why"),
    "InvalidBucketError": ("../a", "/out", "it leads out of that path"),
    "UnsafeNameError": ("../a", "/out"),
    "OccupiedPathError": ("/a", "/b"),
    "AbortedTransactionError": ("orders-a1-3-0",),
    "OptionValueError": ("parallelism.default", "many", "an integer"),
    "PostgresSetupError": ("host:5432/shop", "why", "do this"),
    "PostgresUnreachableError": ("host:5432/shop", "why"),
    "RefusedRowsError": ("orders", "why"),
    "RuntimeSetupError": ("install Java",),
    "SocketConnectionError": ("host", 1, "refused"),
    "StreamQueryError": ("why",),
    "StateDeclaredTwiceError": ("step", "state", "value of Integer", "list of String"),
    "StateTooLargeError": ("step", "state", 10, 5),
    "StateTypeChangedError": ("step", "state", "value state of LONG", "value state of INT", "why"),
    "StateTypeMismatchError": ("f1", lambda: None, Types.INT(), "step", "state", ("key", 1)),
    "StepError": ("step", lambda: None, "why"),
    "UnreadableFileError": ("/in/a.csv", "line 4", "field 'n': 'two' is not a whole number"),
    "UnwritableRecordError": ({"n": "x"}, "field 'n' is not a long"),
    "TextDecodingError": ("/a", 7, "utf-8", "why"),
    "TypeMismatchError": ("f1", lambda: None, Types.ROW([Types.INT()])),
    "UnknownOptionError": ("parallelism", "parallelism.default"),
    "UnserializableFunctionError": ("step", "'lock' = <lock>", "why"),
    "UnsuitableTableError": ("orders", "why"),
    "UnstableKeyError": ("step", PenstockError),
    "UnwritableValueError": ("amount", lambda: None, "why"),
    "UserFunctionError": ("step", lambda: None, "ValueError: why", "Traceback ..."),
}


def all_errors(root: type[PenstockError]) -> Iterator[type[PenstockError]]:
    yield root
    for kind in root.__subclasses__():
        yield from all_errors(kind)


ALL = sorted(
    {e.__name__ for e in all_errors(PenstockError) if e.__module__.startswith(errors.__name__)}
)


@pytest.mark.parametrize("name", ALL)
def test_errors_survive_pickling_with_their_text(name: str) -> None:
    error: PenstockError = getattr(errors, name)(*EXAMPLES.get(name, ("plain",)))
    twin = pickle.loads(pickle.dumps(error))
    assert (type(twin), str(twin)) == (type(error), str(error))
    assert vars(twin) == vars(error)
    assert twin == error
    assert str(pickle.loads(pickle.dumps(twin))) == str(error)


def test_an_error_without_a_record_names_the_method() -> None:
    error = UserFunctionError("lookup", MethodCall("open()"), "OSError: no", "Traceback ...")
    text = "step 'lookup' failed in open(): OSError: no\nTraceback ..."
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == text


def test_a_type_mismatch_pickles_even_if_its_value_does_not() -> None:
    error = TypeMismatchError("", lambda: None, Types.INT())
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_type_mismatch_names_field_value_and_type() -> None:
    error = TypeMismatchError("f1", "x", Types.INT())
    assert str(error) == "field 'f1' does not match its declared type Integer; got 'x'"
    error = TypeMismatchError("", 2**40, Types.INT())
    assert str(error) == "the record does not match its declared type Integer; got 1099511627776"


def test_a_long_value_is_truncated() -> None:
    assert len(str(TypeMismatchError("", "x" * 10_000, Types.INT()))) < 300
