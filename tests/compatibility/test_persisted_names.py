"""Names and numbers that lie in users' directories, brokers and databases, spelled out.

None of what stands here on the right of a comparison may ever change; a class, a field or a member
of an enum may get another name in the code as long as what is written stays the same. Fields of
structs that are written as arrays are not named anywhere: of those the order counts.
"""

from __future__ import annotations

import io
import json
import pickle
import re
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from penstock.channel import columns, segment
from penstock.checkpoint import event_log, history, settings
from penstock.checkpoint.barriers import alignment
from penstock.checkpoint.coordinator import request_decider
from penstock.checkpoint.storage import (
    committed_marker,
    job_dir,
    job_facts,
    journal,
    journal_entries,
    metadata,
    metadata_serializer,
    origins,
)
from penstock.common import (
    Duration,
    Instant,
    Row,
    Types,
    channel_info,
    live_figures,
    metric_values,
    typeinfo,
)
from penstock.common.types import RowKind
from penstock.connectors import collect_sink
from penstock.connectors.acknowledging import acknowledgement_mark, received_log, seen_ids
from penstock.connectors.acknowledging import source as acknowledging_source
from penstock.connectors.contracts import snapshot_files
from penstock.connectors.contracts.sink import WriterContext
from penstock.connectors.files import committables as file_committables
from penstock.connectors.files import enumerator as file_enumerator
from penstock.connectors.files import finished_files, rolling_policy
from penstock.connectors.files import writer as file_writer
from penstock.connectors.formats import input_file
from penstock.connectors.kafka import partitions
from penstock.connectors.kafka.sink import commit_marker
from penstock.connectors.kafka.sink import committable as kafka_committable
from penstock.connectors.kafka.source import broker_client, initial_offsets
from penstock.connectors.kafka.source import enumerator as kafka_enumerator
from penstock.connectors.postgres import names
from penstock.connectors.postgres.transactions import committable as postgres_committable
from penstock.connectors.postgres.transactions import ledger
from penstock.connectors.socket import generations, ingestion_log
from penstock.connectors.staging import staged_output
from penstock.connectors.staging.staged_output import load_staged
from penstock.connectors.staging.staged_values import ValuesWriter, decode_values
from penstock.connectors.two_phase import sink as two_phase_sink
from penstock.connectors.two_phase import transaction_register
from penstock.datastream import CoMapFunction, CountWindow, GlobalWindow, TimeWindow
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer
from penstock.datastream.window import ContinuousEventTimeTrigger, CountTrigger, operation
from penstock.graph import transformation
from penstock.ids import AttemptId, OperatorUid
from penstock.job.input import read_progress
from penstock.job.stage import manifest
from penstock.recovery import control, lease
from penstock.savepoint import layout as savepoint_layout
from penstock.serve.submission import records as submission_records
from penstock.snapshots.queries import query
from penstock.spark.sources import stream_enumerator, stream_log
from penstock.state import delta, savepoint_file, window_encoding
from penstock.state.backends import refs
from penstock.state.keyed import aggregating_state, reducing_state, value_state
from penstock.state.operator import states as operator_state
from penstock.state.registry import meta_info
from penstock.task import layout as task_layout
from penstock.task import messages
from penstock.task.heads import keyed
from penstock.task.time import timer_service
from penstock.task.window import merging
from penstock.types import signature
from tests.compatibility.conftest import golden_jobs
from tests.golden.programs.overtaken import PAIR, THIRDS, Split
from tests.golden.programs.running import Run
from tests.golden.programs.states import build
from tests.unit.support import environment, plan_of

# -- structs that are written as maps -----------------------------------------------------------

FIELDS: dict[Any, str] = {
    journal._Body: "entry crc",
    journal_entries.AttemptStarted: (
        "attempt time host pid restored restored_path given_path fresh life work_dirs "
        "restored_crc claims left_out"
    ),
    journal_entries.StartFailed: "attempt time",
    journal_entries.CheckpointIdsReserved: "attempt upto time",
    journal_entries.CheckpointCompletedEntry: "checkpoint attempt path savepoint metadata_crc time",
    journal_entries.CommitsStarted: "checkpoint attempt time",
    journal_entries.CommitsDone: "checkpoint attempt time",
    journal_entries.CheckpointDiscarded: "checkpoint attempt time",
    journal_entries.DriverProcess: "host machine pid started command execution",
    journal_entries.JobEnded: "attempt status time savepoint retained driver",
    journal_entries.ResultClean: "attempt time",
    journal_entries.ClaimedDiscarded: "attempt path time",
    journal_entries.ClaimedSnapshot: "path metadata_crc",
    journal_entries.BeforeStart: "restorable ended fallen_back claimed",
    journal_entries.JournalState: (
        "tail attempts_so_far attempts highest_id completed restorable commits_started "
        "commits_done committed committed_crc committed_crc_without left_out fallen_back claimed "
        "named ended before_start"
    ),
    journal_entries.Summary: "attempt time state",
    metadata.CommittableState: "checkpoint data",
    metadata.SinkState: "committables state",
    metadata.SourceState: "positions finished memory kept",
    metadata.SubtaskStats: (
        "start_delay_s alignment_s sync_s async_s acknowledged bytes_held new_bytes full_bytes "
        "in_flight_bytes unaligned"
    ),
    metadata.ChannelStats: (
        "producer producer_name input bytes_held in_flight_bytes in_flight_records"
    ),
    metadata.ChannelState: (
        "producer input ordinal exchange parallelism type attempt start end entries tag"
    ),
    metadata.InputWatermarkStatus: "producer input ordinal watermark is_idle",
    metadata.OperatorTime: (
        "watermark next_event_timer next_processing_timer given units idle generators inputs"
    ),
    metadata.OperatorSnapshot: (
        "uid name kind parallelism max_parallelism version backend key_type keyed operator_state "
        "source sink ended timers stats savepoint in_flight channels time"
    ),
    metadata.CheckpointMetadata: (
        "job_id job_name attempt checkpoint kind triggered completed penstock_version operators "
        "properties"
    ),
    messages.GeneratorState: "kind fields",
    origins.Origin: "operations time path kind checkpoint crc job_directory",
    snapshot_files.SnapshotFiles: "directory files",
    refs.FileRef: "name version size crc stored",
    refs.SstFiles: "version files",
    refs.StateRef: "version base deltas inline tables",
    savepoint_file.SavepointFile: (
        "state kind type generation table subtask path rows size crc first_key_group "
        "stop_key_group windows ttl queryable"
    ),
    history.OperatorStats: "uid name stats channels",
    history.CheckpointStats: (
        "id kind status attempt triggered duration_s new_bytes full_bytes operators path failure "
        "story barriers bytes_held in_flight_bytes load_before load_during"
    ),
    history.LoadStats: "seconds records region_records batches busy_s working_s",
    history.Recovery: (
        "attempt checkpoint cause detect_s redeploy_s load_state_s reset_sources_s reset_sinks_s "
        "time loaded_bytes snapshot_age_s catch_up_began_s caught_up_s catch_up_records"
    ),
    history.ExceptionRecord: "time attempt step message traceback",
    event_log.CheckpointEventRecord: "time event stage detail",
    job_facts.PlannedInput: "source exchange input side_output channel",
    job_facts.PlannedStep: "uid name parallelism kind stage max_parallelism description inputs",
    job_facts.JobFacts: "name created program args plan stages settings mode supervised versions",
    submission_records.Submission: "job program entry submitted args settings format",
    submission_records.StartRequest: "time restore_path fresh id",
    submission_records.StartProcess: "host machine pid started time",
    submission_records.StartEnd: "code time",
    lease.Owner: "host machine pid started attempt beat initializing",
    control._RequestFile: "request time",
    control._AnswerFile: "answer time",
    control.Answer: "ok message path channels metrics figures state",
    control.Savepoint: "path",
    control.Stop: "drain path",
    control.Cancel: "",
    control.Checkpoint: "",
    control.Channels: "",
    control.Metrics: "",
    control.Watch: "seconds",
    control.ReadState: "query",
    query.StateQuery: (
        "operator state keys map_key are_json prefix after limit with_expired only_queryable"
    ),
    query.KeyEntries: "key entries next",
    query.StateAnswer: "operator state kind type key_type queryable keys entries next",
    query.RunningState: "answer time read batch checkpoint error",
    channel_info.ChannelInfo: (
        "id name producer producer_uid consumer consumer_uid input exchange micro_batches records "
        "bytes barriers held_at is_full has_ended"
    ),
    live_figures.LiveFigures: (
        "time attempt job stages channels executors driver user status interval"
    ),
    live_figures.StageFigures: (
        "stage name uids parallelism max_parallelism is_source region subtasks operators"
    ),
    live_figures.SubtaskFigures: "subtask executor host metrics",
    live_figures.OperatorFigures: "uid name subtasks",
    live_figures.ExecutorInfo: "id host slots subtasks memory_bytes memory_used_bytes",
    live_figures.DriverInfo: "host pid memory_bytes started spark_ui",
    metric_values.MetricInfo: (
        "step step_uid name kind count rate mean least most subtasks scope value"
    ),
    manifest.StageManifest: (
        "stage batch try_number winners positions consumed segments state records_in counters"
    ),
    manifest.Manifest: "stages",
    acknowledgement_mark.SnapshotPoint: "job attempt position",
    generations.Generation: "job_instance attempt segments end ended",
    generations.InheritedSegment: "name first end",
    generations._File: "generation crc",
    acknowledging_source._State: "cut notes seen",
    kafka_enumerator._State: "stops is_bounded topics",
    file_enumerator.EnumeratorState: "snapshot finished begun roots",
    initial_offsets.InitialOffsets: "starts stops",
    stream_enumerator._QueryState: "committed files end has_ended",
}


@pytest.mark.parametrize("struct", FIELDS, ids=lambda s: f"{s.__module__}.{s.__name__}")
def test_fields_keep_the_names_they_are_written_under(struct: Any) -> None:
    """A field may be added with a default; then it is added here, too, at its place."""
    written = [field.encode_name for field in msgspec.structs.fields(struct)]
    assert " ".join(written) == FIELDS[struct]
    assert not struct.__struct_config__.array_like


TAGS: dict[Any, str] = {
    journal_entries.AttemptStarted: "AttemptStarted",
    journal_entries.StartFailed: "StartFailed",
    journal_entries.CheckpointIdsReserved: "CheckpointIdsReserved",
    journal_entries.CheckpointCompletedEntry: "CheckpointCompleted",
    journal_entries.CommitsStarted: "CommitsStarted",
    journal_entries.CommitsDone: "CommitsDone",
    journal_entries.CheckpointDiscarded: "CheckpointDiscarded",
    journal_entries.JobEnded: "JobEnded",
    journal_entries.ResultClean: "ResultClean",
    journal_entries.Summary: "Summary",
    control.Savepoint: "Savepoint",
    control.Stop: "Stop",
    control.Cancel: "Cancel",
    control.Checkpoint: "Checkpoint",
    control.Channels: "Channels",
    control.Metrics: "Metrics",
    control.Watch: "Watch",
    control.ReadState: "ReadState",
    file_committables.PendingPart: "pending",
    file_committables.StoredPart: "stored",
    file_committables.UnrolledPieces: "unrolled",
}


@pytest.mark.parametrize("struct", TAGS, ids=lambda s: f"{s.__module__}.{s.__name__}")
def test_tags_stay(struct: Any) -> None:
    assert struct.__struct_config__.tag == TAGS[struct]
    assert struct.__struct_config__.tag_field == "type"


# -- structs that are written as arrays ---------------------------------------------------------

CONTEXT = transaction_register.TransactionContext("job", "step", "a1", 2, 3, 4, "token")
IDENTITY = kafka_committable.TransactionalIdentity("id", "group", "topic")

ARRAYS: list[tuple[Any, list[Any]]] = [
    (refs.StoredAt("7-a1-b7-t0-s0-a3-0.bundle", 12), ["7-a1-b7-t0-s0-a3-0.bundle", 12]),
    (segment.Slice(1, 2, 3, 4), [1, 2, 3, 4]),
    (segment.Segment("name", 5, [[segment.Slice(1, 2, 3, 4)]]), ["name", 5, [[[1, 2, 3, 4]]]]),
    (
        file_committables.PendingPart("pending", "final", 5, ["piece"], ["held"], 6),
        ["pending", "pending", "final", 5, ["piece"], ["held"], 6],
    ),
    (
        file_committables.StoredPart(
            "final", [rolling_policy.Piece("path", 5, 1.5, 6)], ["p"], ["h"], "id", [("e", "c")]
        ),
        ["stored", "final", [["path", 5, 1.5, 6]], ["p"], ["h"], "id", [["e", "c"]]],
    ),
    (
        file_committables.UnrolledPieces(1, "bucket", [rolling_policy.Piece("path", 5, 1.5, 6)]),
        ["unrolled", 1, "bucket", [["path", 5, 1.5, 6]]],
    ),
    (file_writer.StagedPart("bucket", "path", 5, 6), ["bucket", "path", 5, 6]),
    (CONTEXT, ["job", "step", "a1", 2, 3, 4, "token"]),
    (transaction_register.Entry(CONTEXT, None), [["job", "step", "a1", 2, 3, 4, "token"], None]),
    (
        two_phase_sink._Prepared(CONTEXT, "register", b"c"),
        [["job", "step", "a1", 2, 3, 4, "token"], "register", b"c"],
    ),
    (collect_sink.Delivery("id", [b"block"], 5, 6), ["id", [b"block"], 5, 6]),
    (snapshot_files.SnapshotFile("name", 5, 6), ["name", 5, 6]),
    (seen_ids._Encoded(1, [2], b"names", [3.0]), [1, [2], b"names", [3.0]]),
    (IDENTITY, ["id", "group", "topic"]),
    (kafka_committable.StagedRecords("name", 5, 6, b"inline"), ["name", 5, 6, b"inline"]),
    (
        kafka_committable.KafkaCommittable(IDENTITY, 1, 2, 3, 4, "root", []),
        [["id", "group", "topic"], 1, 2, 3, 4, "root", []],
    ),
    (staged_output.StagedOutput(5, b"data", "name", 6), [5, b"data", "name", 6]),
    (postgres_committable.RowBatch(("a", "b"), 5, []), [["a", "b"], 5, []]),
    (
        postgres_committable.PostgresCommittable("gid", "table", "target", [], True, "root"),
        ["gid", "table", "target", [], True, "root"],
    ),
    (
        operator_state.StoredList(operator_state.RedistributionMode.UNION, "LONG", [b"1"]),
        ["union", "LONG", [b"1"]],
    ),
    (meta_info.TtlMetaInfo(1, 2, True, b"cursor", 3, 4, 5), [1, 2, True, b"cursor", 3, 4, 5]),
    (
        meta_info.StateMetaInfo(1, "value state", "LONG", 2, "time", None),
        [1, "value state", "LONG", 2, "time", None, ""],
    ),
    (
        meta_info.StateMetaInfo(1, "value state", "LONG", 2, "time", None, "count"),
        [1, "value state", "LONG", 2, "time", None, "count"],
    ),
    (delta.Block([b"k"], [b"v"], [b"d"]), [[b"k"], [b"v"], [b"d"]]),
]


@pytest.mark.parametrize(("struct", "array"), ARRAYS, ids=lambda a: type(a).__name__)
def test_arrays_keep_their_order(struct: Any, array: list[Any]) -> None:
    data = msgspec.msgpack.encode(struct)
    assert msgspec.msgpack.decode(data) == array
    assert msgspec.msgpack.decode(data, type=type(struct)) == struct


def test_a_topic_and_a_logged_file_are_arrays() -> None:
    for struct in (broker_client.TopicId, stream_log.LoggedFile):
        assert struct.__struct_config__.array_like


# -- enums --------------------------------------------------------------------------------------

OPERATOR_KINDS = (
    "source, map, flat_map, filter, process, process_batch, keyed_process_batch, "
    "assign_timestamps, keyed_map, keyed_flat_map, keyed_filter, keyed_process, reduce, window, "
    "co_map, co_flat_map, co_process, keyed_co_map, keyed_co_flat_map, keyed_co_process, "
    "broadcast_process, keyed_broadcast_process, async, decouple, native, sink"
)
EXCHANGES = "auto, forward, rebalance, rescale, shuffle, broadcast, global, hash, custom"
EVENTS = (
    "triggered, barrier injected, barrier seen, switched to unaligned, input held, "
    "barrier overtook, snapshot frozen, barrier forwarded, in-flight data complete, acknowledged, "
    "completed, aborted"
)

ENUMS: list[tuple[type[Enum], str]] = [
    # These two are hashed into automatic uids, and lie in metadata.
    (transformation.OperatorKind, OPERATOR_KINDS),
    (transformation.Exchange, EXCHANGES),
    (history.CheckpointStatus, "PENDING, COMPLETED, FAILED"),
    (request_decider.RequestKind, "stop, savepoint, final, manual, periodic"),
    (alignment.BarrierHandling, "aligned, tracked, unaligned"),
    (event_log.CheckpointEvent, EVENTS),
    (operator_state.RedistributionMode, "split, union, broadcast"),
    (columns.RecordLayout, "scalar, tuple, row, pickle, typed, key, text key"),
    (transaction_register.Phase, ".opened, .prepared, .committing"),
    (RowKind, "0, 1, 2, 3"),
    (settings.Guarantee, "EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE"),
]


@pytest.mark.parametrize(("enum", "values"), ENUMS, ids=lambda e: getattr(e, "__name__", ""))
def test_values_of_enums_stay(enum: type[Enum], values: str) -> None:
    assert {str(member.value) for member in enum} == set(values.split(", "))


def test_names_of_types_stay() -> None:
    """These are members' names: the text of a type is made of them."""
    names = (
        "STRING, BYTE, BOOLEAN, SHORT, INT, LONG, FLOAT, DOUBLE, CHAR, BIG_INT, BIG_DEC, INSTANT"
    )
    assert {kind.name for kind in typeinfo.BasicType} == set(names.split(", "))
    assert {kind.name for kind in typeinfo.SqlTimeType} == {"DATE", "TIME", "TIMESTAMP"}
    everything = Types.TUPLE(
        [
            Types.PICKLED_BYTE_ARRAY(),
            Types.LIST(Types.LONG()),
            Types.MAP(Types.STRING(), Types.SQL_DATE()),
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
            Types.BASIC_ARRAY(Types.INT()),
            Types.OBJECT_ARRAY(Types.SQL_TIMESTAMP()),
            Types.ROW_NAMED(["a", "b c"], [Types.INSTANT(), Types.BIG_DEC()]),
        ]
    )
    assert signature.type_signature(everything) == (
        "TUPLE(PICKLED_BYTE_ARRAY, LIST(LONG), MAP(STRING, SQL_DATE), PRIMITIVE_ARRAY(BYTE), "
        'BASIC_ARRAY(INT), OBJECT_ARRAY(SQL_TIMESTAMP), ROW(a: INSTANT, "b c": BIG_DEC))'
    )


# -- automatic uids -----------------------------------------------------------------------------

UIDS = [
    "660714c27487bb3a13ed20f5fac96776",
    "7e2a88e6b85181c9bd9fd8717a76bd38",
    "293503142d7e41a1d35d1a784663bf5f",
    "939e7d632f8b6322d3dd22b179a247c6",
    "0f0d79a87f8fa28ce9e51d6ae8c8e1ab",
    "4c89e5d5a93f112c1a5ad3d09ec2094f",
    "a0e1972c6820c299a6c562a794307d04",
    "abd99f2d1fb99ea497b5d7eff43fac61",
    "47b0b61b13dee74138981c6615dcb85a",
    "c44902b810fa342f116238f7850045bf",
    "9b11633879ed00f0da55b3d6eafe1088",
    "f8f9644810b70065a73ea56f751b9909",
    "106613e1972cd9eec0d14a077ff45989",
    "deb9c7c1979cf1cbb15ae0ea89dd394b",
    "4b644797f958cc8ab363c3726b2abbdc",
    "7fa3b32ecda09314e7a85e2c10e55201",
    "b66c1fd58fb18603ffb016035b1e97a2",
    "f085b2d55c8d41c0661d06e00f9cdebb",
]


def test_automatic_uids_of_the_golden_program_stay(tmp_path: Path) -> None:
    plan = plan_of(build(Run(tmp_path)))
    assert sorted(n.uid for s in plan.stages for n in s.nodes) == sorted(UIDS)


class Pass(CoMapFunction[Any, Any, Any]):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return value


def test_automatic_uids_of_exchanges_side_outputs_and_second_inputs_stay() -> None:
    env = environment()
    source = env.from_collection([1, 2], Types.LONG()).uid("source")
    numbers = source.process(Split(), PAIR).uid("numbers")
    steps = {
        "shuffle": numbers.shuffle(),
        "rescale": numbers.rescale(),
        "rebalance": numbers.rebalance(),
        "global": numbers.global_(),
        "broadcast": numbers.broadcast(),
        "forward": numbers.forward(),
        "side": numbers.get_side_output(THIRDS),
        "auto": numbers,
        "second input": numbers.connect(source),
    }
    for name, stream in steps.items():
        function = Pass() if name == "second input" else lambda pair: pair
        stream.map(function, PAIR).name(name).print()  # type: ignore[attr-defined]
    plan = plan_of(env)
    found = {n.name: n.uid for s in plan.stages for n in s.nodes if n.name in steps}
    assert found == EXCHANGED


EXCHANGED = {
    "auto": "8000158ebc49862357614f9e32e64a1b",
    "broadcast": "fb3e26032ad9782d06fb0839690fb9c5",
    "forward": "7790689917df5947f2c5595001ffc603",
    "global": "1d97d7341413c562b62ff7dc461ba45f",
    "rebalance": "d1ef13f7606196ced3c0d724eb5576a5",
    "rescale": "f04a91aaf5514d37d2f60a600fc43ebb",
    "second input": "6e38bf8ce02118f1cf1c1af73d2b695b",
    "shuffle": "691b9636bb8cd02c328743c4171cdcbe",
    "side": "2584b33b444caddeda411e7541ad6500",
}


# -- pickles ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Row(1, 2), {"penstock.common.row _restore", "penstock.common.row RowKind"}),
        (RowKind.DELETE, {"penstock.common.row RowKind"}),
        (TimeWindow(1, 2), {"penstock.datastream.window.windows TimeWindow"}),
        (CountWindow(1), {"penstock.datastream.window.windows CountWindow"}),
        (GlobalWindow.get(), {"penstock.datastream.window.windows GlobalWindow"}),
        (Instant(1, 2), {"penstock.common.time Instant"}),
        (Duration.of_seconds(1), {"penstock.common.time Duration"}),
    ],
    ids=lambda given: type(given).__name__,
)
def test_pickled_values_name_the_same_classes(value: Any, named: set[str]) -> None:
    """What users keep undeclared is pickled with these names.

    A class that moves must be found under its old name for ever.
    """
    reader = _Named(pickle.dumps(value, 5))
    assert reader.load() == value
    assert {name for name in reader.names if name.startswith("penstock")} == named


class _Named(pickle.Unpickler):
    """Takes note of what a pickle names."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.names: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.names.add(f"{module} {name}")
        return super().find_class(module, name)


OLD_PICKLES = {
    "row": Row(1, "a"),
    "named row": Row(number=1, text="a"),
    "windows": (TimeWindow(1, 2), CountWindow(3), GlobalWindow.get()),
    "kind": RowKind.UPDATE_BEFORE,
}


@pytest.mark.parametrize("name", OLD_PICKLES)
def test_old_pickles_are_read(name: str) -> None:
    data = (Path(__file__).parents[1] / "golden" / "pickles-v1.json").read_text()
    assert pickle.loads(bytes.fromhex(json.loads(data)[name])) == OLD_PICKLES[name]


@pytest.mark.parametrize("name", ["row", "named row"])
def test_old_pickles_of_pending_output_are_read_for_a_declared_type(name: str) -> None:
    data = (Path(__file__).parents[1] / "golden" / "pickles-v1.json").read_text()
    output = bytes.fromhex(json.loads(data)[name])
    declared = Types.ROW([Types.LONG(), Types.STRING()])
    assert decode_values(output, declared) == [OLD_PICKLES[name]]


def test_pending_output_of_a_declared_type_keeps_its_format(tmp_path: Path) -> None:
    writer = ValuesWriter(WriterContext(0, 1, tmp_path, "name", Types.LONG()))
    for value in (1, 300):
        writer.write(value)
    data = b"\x02\0\0\0\x04LONG\x01\0\0\0\x01\x01\x01\0\0\0\x03\xcd\x01\x2c"
    assert load_staged(writer.stage(), tmp_path) == data


# -- files --------------------------------------------------------------------------------------


def test_magic_numbers_stay() -> None:
    assert metadata_serializer.MAGIC == b"PENSTOCKCHK\0"
    assert delta._MAGIC == b"PNSK"
    assert (delta._FORMAT, delta._HEADER.format) == (1, ">4sBxxxQ")
    assert ingestion_log._MAGIC == b"PIL1"
    assert (ingestion_log._FIELDS.format, generations._SUFFIX) == ("<4sIIQI", ".segment")
    assert (received_log._HEADER.format, received_log._SUFFIX) == ("<IIQI", ".received")
    assert segment._LAYOUT == b"penstock.layout"


def test_names_of_states_that_are_not_the_users_stay() -> None:
    assert timer_service.EVENT_TIMERS == "_timers/event-time"
    assert timer_service.PROCESSING_TIMERS == "_timers/processing-time"
    assert merging.IN_FLIGHT.name == "merging-window-set"
    assert keyed.REDUCE_STATE == "_reduce_state"
    assert operation.WINDOW_CONTENTS == "window-contents"
    assert CountTrigger(1)._count_state_descriptor.name == "count"
    assert ContinuousEventTimeTrigger(1).state_desc.name == "fire-time"
    kinds = (meta_info.LIST_STATE, meta_info.MAP_STATE, meta_info.RAW_STATE, meta_info.TIMERS)
    assert kinds == ("list state", "map state", "raw state", "timers")
    assert value_state.KeyedValueState.kind == "value state"
    assert reducing_state.KeyedReducingState.kind == "reducing state"
    assert aggregating_state.KeyedAggregatingState.kind == "aggregating state"
    assert (window_encoding.TIME, window_encoding.COUNT) == ("time", "count")
    assert (window_encoding.GLOBAL, window_encoding.CUSTOM) == ("global", "custom")


def test_a_jobs_directory_keeps_its_names() -> None:
    place = job_dir.JobDir(Path("/c"), job_dir.job_key("job", ""))
    paths = {
        place.journal: "journal",
        place.shared: "shared",
        place.control: "control",
        place.driver: "driver.json",
        place.job: "job.json",
        place.live: "live.json",
        place.checkpoint_dir(7): "chk-7",
        place.savepoint(7): "savepoints/7.metadata",
    }
    for path, name in paths.items():
        assert path == Path("/c/job") / name
    assert journal._path(7) == "journal/000000000007"
    assert history._path(7) == "history/000000000007.json"
    assert job_dir.METADATA == savepoint_layout.METADATA == "_metadata"
    assert committed_marker.COMMITTED == "_committed"
    assert committed_marker._marker(0xABC) == b"00000abc\n"
    assert job_dir.job_key(None, "Word Count") == "word-count-a1faed8c"
    assert task_layout.file_name(OperatorUid("a/b")).startswith("uid-")
    properties = {metadata.LINEAGE, metadata.JOB_DIRECTORY, metadata.JOB_INSTANCE}
    assert properties == {"life", "job-directory", "job-instance"}
    assert origins.ORIGINS == "derived-from"


def test_the_directory_of_a_submitted_job_keeps_its_names() -> None:
    place = submission_records.SubmissionDir(Path("/u/jobs/mine"))
    start = place.start(3)
    paths = {
        place.program: "program",
        place.settings: "settings.yaml",
        place.arguments: "arguments.json",
        place.work: "work",
        start.path: "starts/3",
        start.log: "starts/3/driver.log",
    }
    for path, name in paths.items():
        assert path == Path("/u/jobs/mine") / name
    names = submission_records._SUBMISSION, submission_records._REQUEST
    assert names == ("submission.json", "request.json")
    assert (submission_records._PROCESS, submission_records._END) == ("process.json", "end.json")
    assert submission_records.FORMAT == 1


def test_a_savepoint_keeps_its_names() -> None:
    operator = savepoint_layout.SavedOperator("uid", "LONG", 128)
    ttl = meta_info.TtlMetaInfo(5, 0, False)
    info = meta_info.StateMetaInfo(1, "value state", "LONG", 0, "time", ttl)
    assert savepoint_layout.properties_of(operator, "count", info, 2) == {
        "penstock.format": "1",
        "penstock.uid": "uid",
        "penstock.state": "count",
        "penstock.kind": "value state",
        "penstock.type": "LONG",
        "penstock.key_type": "LONG",
        "penstock.max_parallelism": "128",
        "penstock.subtask": "2",
        "penstock.windows": "time",
        "penstock.ttl_ms": "5",
    }
    names = [field.name for field in savepoint_layout.columns_for(info, "LONG").fields]
    assert names == [
        "key_group", "key", "window_start", "window_end", "value", "alive_since", "key_bytes",
        "window_bytes",
    ]  # fmt: skip
    assert savepoint_layout.part_name(2) == "part-2.parquet"


# -- brokers and databases ----------------------------------------------------------------------


def test_what_a_job_leaves_in_kafka_stays() -> None:
    published = (commit_marker.AttemptProgress(3, 7, None), commit_marker.AttemptProgress(4, 9, 2))
    text = commit_marker.CommitMarker(2, published).text
    assert text == "from=2 3:7 4:9/2"
    assert commit_marker.CommitMarker.parse(text) == commit_marker.CommitMarker(2, published)
    assert commit_marker.CommitMarker(2, published).offset == 4 * 10**10 + 9


def test_what_a_kafka_source_keeps_stays(tmp_path: Path) -> None:
    assert partitions.KafkaTopicPartition("a-1", 2).split == "a-1-2"
    topics = {"a": broker_client.TopicId("cluster", "topic")}
    finished = finished_files.FinishedFiles(checkpointed=True)
    finished.add("/in/a", input_file.FileIdentity(inode=1, size=2, mtime_ns=3))
    assert finished.encode().hex() == "e2820227f9e4daad77c243b08b6e1003"
    memory = msgspec.json.encode(kafka_enumerator._State({"a-0": 5}, True, topics))
    assert memory == (b'{"stops":{"a-0":5},"is_bounded":true,"topics":{"a":["cluster","topic"]}}')
    note = initial_offsets.InitialOffsetsFile(tmp_path, "a1", "asked")
    note.write(initial_offsets.InitialOffsets({"a-0": 5}, {}))
    (path,) = (tmp_path / "first-start").iterdir()
    assert path.name == "3d7a7cfa54f7056fb7dc1d4970741be6.json"
    assert path.read_bytes() == b'{"starts":{"a-0":5},"stops":{}}'


def test_texts_that_name_the_first_start_of_a_kafka_source_stay() -> None:
    """They are hashed into the name of its note: with another text it would not be found."""
    offsets = KafkaOffsetsInitializer
    given = {partitions.KafkaTopicPartition("a", 0): 1}
    assert [
        repr(starting)
        for starting in (
            offsets.earliest(),
            offsets.latest(),
            offsets.committed_offsets(),
            offsets.timestamp(5),
            offsets.offsets(given),
        )
    ] == [
        "_ByStrategy(strategy=<KafkaOffsetResetStrategy.EARLIEST: 1>)",
        "_ByStrategy(strategy=<KafkaOffsetResetStrategy.LATEST: 0>)",
        "_Committed(strategy=<KafkaOffsetResetStrategy.NONE: 2>)",
        "_AtTime(moment=5)",
        "_Given(offsets_by_partition=((a-0, 1),), strategy=<KafkaOffsetResetStrategy.EARLIEST: 1>)",
    ]
    assert str(partitions.Subscription(("a", "b"))) == "a, b"


def test_what_a_broker_was_told_to_forget_stays(tmp_path: Path) -> None:
    mark = acknowledgement_mark.AcknowledgementMark(tmp_path, "a1")
    point = acknowledgement_mark.SnapshotPoint("job", "a1", 5)
    mark.write(point)
    written = (tmp_path / "acknowledged-a1.json").read_bytes()
    assert written == b'{"job":"job","attempt":"a1","position":5}'
    # Before each attempt had a file of its own.
    (tmp_path / "acknowledged-a1.json").rename(tmp_path / "acknowledged.json")
    assert mark.read() == point


def test_names_of_files_of_an_ingestion_log_stay(tmp_path: Path) -> None:
    assert generations.path_of(tmp_path, 3).name == "generation-000000000003.json"
    assert generations.segment_path(tmp_path, 70, 3).name == "00000000000000000070.3.segment"


def test_where_an_at_most_once_job_has_read_to_stays(tmp_path: Path) -> None:
    attempt = AttemptId("a2")
    progress = read_progress.ReadProgress(tmp_path, OperatorUid("in"), attempt, lambda: None)
    (tmp_path / "progress").mkdir()
    # Before each attempt had a file of its own.
    (tmp_path / "progress" / "in.json").write_bytes(b'{"a":3}')
    assert progress.read() == {"a": 3}
    progress.write({"a": 5})
    assert (tmp_path / "progress" / "in" / "a2.json").read_bytes() == b'{"a":5}'
    assert progress.read() == {"a": 5}


def test_what_a_job_leaves_in_postgresql_stays() -> None:
    schema, fence, commits = ledger.ledger_ddl("s")
    assert schema == 'CREATE SCHEMA IF NOT EXISTS "s"'
    assert fence == (
        'CREATE TABLE IF NOT EXISTS "s".penstock_fence (sink text PRIMARY KEY, job text NOT NULL, '
        "step text NOT NULL, attempt bigint NOT NULL, taken_at timestamptz NOT NULL)"
    )
    assert commits == (
        'CREATE TABLE IF NOT EXISTS "s".penstock_ledger (gid text PRIMARY KEY, sink text NOT NULL, '
        "attempt bigint NOT NULL, row_count bigint NOT NULL, entered_at timestamptz NOT NULL)"
    )
    sink = names.SinkIdentity("job", "birth", "step", "a3")
    assert sink.key == EXPECTED_KEY
    assert sink.gid(7, 1, "nonce") == f"penstock-{EXPECTED_KEY}-a3-7-1-nonce-job-step"


EXPECTED_KEY = "1b0d3440f87fd612"


# -- what is in the golden directories ----------------------------------------------------------


def _json_values(pattern: str, key: str) -> set[str]:
    found: set[str] = set()
    for golden in golden_jobs():
        for path in golden.values[0].glob(pattern):  # type: ignore[attr-defined]
            found |= set(re.findall(rf'"{key}":"([^"]*)"', path.read_text()))
    return found


def test_golden_journals_hold_every_kind_of_entry_and_every_end() -> None:
    journals = "checkpoints/*/journal/*"
    tags = {tag for struct, tag in TAGS.items() if struct.__module__ == journal_entries.__name__}
    assert _json_values(journals, "type") == tags
    assert _json_values(journals, "status") == set(get_args(journal_entries.RecordedStatus))


def test_golden_histories_hold_what_can_become_of_checkpoints() -> None:
    """But for what is noted only of a checkpoint that takes long: PENDING."""
    records = "checkpoints/*/history/*.json"
    assert _json_values(records, "status") == {"COMPLETED", "FAILED"}
    assert _json_values(records, "kind") == {kind.value for kind in request_decider.RequestKind}
    assert _json_values(records, "barriers") == {way.value for way in alignment.BarrierHandling}
    # Rare ones, which only people read.
    rare = {event_log.CheckpointEvent.SWITCHED, event_log.CheckpointEvent.INPUT_BLOCKED}
    assert _json_values(records, "event") >= set(event_log.CheckpointEvent) - rare
