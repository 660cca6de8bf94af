"""Writes the files of a savepoint, operator by operator, then its metadata."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace
from pyspark.sql import SparkSession

from penstock.checkpoint.storage.metadata import OperatorSnapshot, OperatorTime, SourceState
from penstock.checkpoint.storage.origins import Origin
from penstock.common.storage_url import Location
from penstock.connectors.contracts.snapshot_files import SnapshotFiles, copy_snapshot_files
from penstock.errors import BadSavepointContentError
from penstock.savepoint.layout import operator_dir
from penstock.savepoint.write import write_state
from penstock.snapshots.writing.base_snapshot import BaseSnapshot
from penstock.snapshots.writing.carried_state import (
    ConvertWork,
    CopyWork,
    convert_part,
    copy_file,
)
from penstock.snapshots.writing.new_savepoint import (
    complete,
    finished_files,
    remove_files,
    stats_of,
    writing_to,
)
from penstock.snapshots.writing.reset_watermarks import after_positions_of, without_watermarks
from penstock.snapshots.writing.row_encoder import Problem
from penstock.snapshots.writing.targets import StateTarget
from penstock.spark.state.writing.drafts import CarriedState, OperatorDraft, chosen_columns
from penstock.spark.state.writing.jobs import StateWritten, WriteJobs, unique_name
from penstock.spark.state.writing.report import carried, problems_of
from penstock.spark.state.writing.rows import KeyedRows
from penstock.state.savepoint_file import SavepointFile
from penstock.task.time.timer_service import EVENT_TIMERS, PROCESSING_TIMERS


def write_savepoint(
    spark: SparkSession,
    savepoint: Location,
    drafts: Sequence[OperatorDraft],
    base: BaseSnapshot | None,
    origins: Sequence[Origin],
) -> None:
    """Write a savepoint; it exists when the last step, writing its metadata, is done.

    Raises:
        BadSavepointContentError: rows do not fit; all problems are named.
        SavepointExistsError: there is a savepoint.
        CorruptStateError: a file of the base, or one that was written, is damaged.
    """
    with writing_to(savepoint):
        jobs = WriteJobs(spark, savepoint, unique_name())
        writer = _Writer(jobs, savepoint, base, _reset(drafts, base))
        try:
            written = [writer.operator(draft) for draft in drafts]
            if writer.problems:
                texts = tuple(dict.fromkeys(map(str, writer.problems)))
                raise BadSavepointContentError(str(savepoint), texts)
            files = finished_files(savepoint, [f for o in written for f in o.savepoint])
        except BaseException:
            remove_files(savepoint, writer.files)
            raise
        operators, start = [], 0
        for operator in written:
            own = files[start : start + len(operator.savepoint)]
            start += len(own)
            operators.append(replace(operator, savepoint=own))
        complete(savepoint, operators, base, origins)


def _reset(drafts: Sequence[OperatorDraft], base: BaseSnapshot | None) -> set[str]:
    """Return the operators of the base whose watermarks start from the beginning."""
    if base is None:
        return set()
    moved = [draft for draft in drafts if draft.has_new_positions]
    sources = {draft.uid if draft.old is None else draft.old.uid for draft in moved}
    return after_positions_of(sources, base.metadata.operators)


class _Writer:
    def __init__(
        self,
        jobs: WriteJobs,
        savepoint: Location,
        base: BaseSnapshot | None,
        reset: Collection[str],
    ) -> None:
        self._jobs = jobs
        self._reset = reset
        self._savepoint = savepoint
        self._base = base
        self.problems: list[Problem] = []
        self.files: list[SavepointFile] = []
        """All that were written, under the names of their tasks."""

    def operator(self, draft: OperatorDraft) -> OperatorSnapshot:
        """Write the keyed state of an operator and its source's files; return its metadata."""
        first_times: dict[str, int | None] = {}
        files = self._carried(draft)
        table = max((keyed.info.table for keyed in draft.keyed.values()), default=0)
        for name, keyed in draft.keyed.items():
            if isinstance(keyed, KeyedRows):
                table += 1
                target = draft.target(keyed).with_table(table)
                columns, missing = chosen_columns(draft, keyed)
                self.problems += missing
                found = [] if missing else self._jobs.write_rows(target, keyed.frame, columns)
            elif draft.keeps_key_groups:
                continue
            else:
                target = StateTarget(draft.saved, draft.parallelism, name, keyed.info)
                found = self._jobs.write_regrouped(target, keyed.state, draft.parts)
            files += self._written(found, target)
            times = [one.first_time for one in found if one.first_time is not None]
            first_times[name] = min(times, default=None)
        source = self._source(draft)
        return self._metadata(draft, files, source, first_times)

    def _carried(self, draft: OperatorDraft) -> list[SavepointFile]:
        """Copy or convert what stays as it is, in the same key groups."""
        kept = carried(draft)
        if not kept or not draft.keeps_key_groups:
            return []
        old, base = draft.old, self._base
        assert old is not None
        assert base is not None
        names = {one.state.name for one in kept}
        if draft.keeps_files:
            copies = [
                CopyWork(base.stored.directory, file, self._savepoint, draft.uid)
                for file in old.savepoint
                if file.state in names
            ]
            files = self._jobs.carry_over(copies, copy_file)
        else:
            states = tuple(one.state for one in kept)
            conversions = [
                ConvertWork(part, states, draft.saved, self._savepoint) for part in draft.parts
            ]
            files = self._jobs.carry_over(conversions, convert_part)
        self.files += files
        return files

    def _written(self, found: Sequence[StateWritten], target: StateTarget) -> list[SavepointFile]:
        self.problems += problems_of(found)
        files = [one.file for one in found if one.file is not None]
        if not files:
            # A state without entries: the file records that it exists, and its type.
            empty = write_state(
                [], target.operator, target.state, target.info, self._savepoint, 0, self._jobs.name
            )
            files.append(empty)
        self.files += files
        return files

    def _source(self, draft: OperatorDraft) -> SourceState | None:
        """Copy the files of a source; return its state."""
        source = draft.source
        if source is None or source.files is None:
            return source
        assert self._base is not None
        place = source.files.located_in(self._base.stored.directory)
        directory = f"{operator_dir(draft.uid)}/source"
        copy_snapshot_files(place, source.files.files, self._savepoint / directory)
        return replace(source, files=SnapshotFiles(directory, source.files.files))

    def _metadata(
        self,
        draft: OperatorDraft,
        files: list[SavepointFile],
        source: SourceState | None,
        first_times: dict[str, int | None],
    ) -> OperatorSnapshot:
        old = draft.old
        time = OperatorTime() if old is None else old.time
        ended = old is not None and old.ended
        if old is not None and old.uid in self._reset:
            time, ended = without_watermarks(time), False
        event = _first_time(draft, EVENT_TIMERS, first_times, time.next_event_timer)
        processing = _first_time(draft, PROCESSING_TIMERS, first_times, time.next_processing_timer)
        time = replace(time, next_event_timer=event, next_processing_timer=processing)
        return OperatorSnapshot(
            uid=draft.uid,
            name=draft.name,
            kind=draft.kind,
            parallelism=draft.parallelism,
            max_parallelism=draft.max_parallelism,
            version=0 if old is None else old.version,
            key_type=draft.key_type,
            operator_state=draft.encoded_lists(),
            source=source,
            sink=draft.sink,
            ended=ended,
            stats=stats_of(files, draft.parallelism),
            savepoint=files,
            time=time,
        )


def _first_time(
    draft: OperatorDraft, name: str, written: dict[str, int | None], before: int | None
) -> int | None:
    """Return when the first timers of a time domain are due."""
    keyed = draft.keyed.get(name)
    if keyed is None:
        return None
    return before if isinstance(keyed, CarriedState) else written[name]
