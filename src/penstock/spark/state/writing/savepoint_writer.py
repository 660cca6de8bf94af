"""`SavepointWriter`: creates savepoints from DataFrames, and changed copies of snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import msgspec
from pyspark.sql import DataFrame, SparkSession

from penstock.checkpoint.storage.metadata import SourceState
from penstock.checkpoint.storage.origins import Origin
from penstock.common.config.locations import parse_location
from penstock.common.storage_url import Location
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from penstock.errors import BadSavepointContentError
from penstock.graph.transformation import OperatorKind
from penstock.savepoint.layout import METADATA
from penstock.snapshots.writing.base_snapshot import BaseSnapshot, open_base
from penstock.snapshots.writing.operator_lists import broadcast_map, operator_list
from penstock.snapshots.writing.row_encoder import Problem
from penstock.snapshots.writing.targets import info_of
from penstock.spark.state.writing.drafts import (
    CarriedState,
    Keyed,
    OperatorDraft,
    drafts_of,
    new_draft,
)
from penstock.spark.state.writing.jobs import WriteJobs
from penstock.spark.state.writing.report import SavepointReport, checked
from penstock.spark.state.writing.rows import (
    KeyedRows,
    OperatorRows,
    StateRows,
    collected,
    rows_of_state,
)
from penstock.spark.state.writing.write import write_savepoint
from penstock.state.key_groups import HIGHEST_MAX_PARALLELISM, LOWEST_DEFAULT
from penstock.state.operator.states import RedistributionMode, StoredList
from penstock.types.signature import PICKLED, type_signature

Transform = Callable[[DataFrame], DataFrame]

_KEY_BYTES = "key_bytes"


class SavepointWriter:
    """Puts a savepoint together, checks it and writes it, from which a job then starts.

    Every method but `dry_run` and `write` returns the writer. What does not fit together is a
    problem that `dry_run` reports and `write` raises, all at once. Nothing is changed in the
    snapshot that is read.
    """

    def __init__(
        self,
        spark: SparkSession,
        max_parallelism: int,
        base: BaseSnapshot | None,
        options: Mapping[str, str] | None,
    ) -> None:
        """Use `new_savepoint` or `from_existing_savepoint`."""
        self._spark = spark
        self._max_parallelism = max_parallelism
        self._base = base
        self._options = options
        drafts = [] if base is None else drafts_of(base)
        self._drafts: dict[str, OperatorDraft] = {draft.uid: draft for draft in drafts}
        self._operations: list[str] = []
        self._problems: list[Problem] = []
        if not 0 < max_parallelism <= HIGHEST_MAX_PARALLELISM:
            reason = f"max parallelism {max_parallelism} is not within 1 and 32768"
            self._problems.append(Problem("", reason))

    @classmethod
    def new_savepoint(
        cls,
        spark: SparkSession,
        max_parallelism: int = LOWEST_DEFAULT,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> SavepointWriter:
        """Return a writer of a savepoint without any state.

        `storage_options` reach the store that the savepoint is written to, if it is in one.
        """
        return cls(spark, max_parallelism, None, storage_options)

    @classmethod
    def from_existing_savepoint(
        cls,
        spark: SparkSession,
        path: str | Path,
        *,
        checkpoint: int | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> SavepointWriter:
        """Return a writer of a changed copy of a savepoint or retained checkpoint.

        `path` may also be the directory of a job: its newest checkpoint, or the one with an id.

        Raises:
            NotASnapshotError: there is none.
            InFlightDataError: it is a checkpoint with in-flight data.
        """
        base = open_base(parse_location(str(path), storage_options), checkpoint)
        try:
            return cls(spark, LOWEST_DEFAULT, base, storage_options)
        except BaseException:
            base.release()
            raise

    # -- operators --------------------------------------------------------------------------

    def with_operator(
        self,
        uid: str,
        key_type: TypeInformation | None = None,
        states: Iterable[StateRows] = (),
        *,
        name: str | None = None,
        max_parallelism: int | None = None,
        parallelism: int | None = None,
    ) -> Self:
        """Add an operator with its states; `key_type` is that of its `key_by`.

        `parallelism` is the number of files for each state; a job may have any other.
        """
        if uid in self._drafts:
            return self._problem(uid, "there is an operator with this uid already")
        most = max_parallelism or self._max_parallelism
        if not 0 < most <= HIGHEST_MAX_PARALLELISM:
            self._problem(uid, f"max parallelism {most} is not within 1 and 32768")
            most = LOWEST_DEFAULT
        files = parallelism or self._spark.sparkContext.defaultParallelism
        self._drafts[uid] = new_draft(
            uid,
            name or uid,
            OperatorKind.KEYED_PROCESS,
            PICKLED if key_type is None else type_signature(key_type),
            most,
            max(1, min(files, most)),
        )
        self._operations.append(f"operator {uid!r} added")
        for rows in states:
            self.with_state(uid, rows)
        return self

    def remove_operator(self, uid: str, *, discard_output: bool = False) -> Self:
        """Leave an operator out, with all of its state.

        A sink whose output is not known to be committed is a problem unless that is discarded.
        """
        draft = self._draft(uid)
        if draft is None:
            return self
        if draft.has_pending_output and not discard_output:
            return self._problem(
                uid,
                "it has output that is not committed, which would be lost: start a job with it "
                "once, so that it commits, or pass discard_output=True",
            )
        del self._drafts[uid]
        return self._did(f"operator {uid!r} removed")

    def change_operator_identifier(self, old: str, new: str) -> Self:
        """Give an operator another uid."""
        draft = self._draft(old)
        if draft is None:
            return self
        if new in self._drafts:
            return self._problem(new, "there is an operator with this uid already")
        if draft.has_pending_output:
            # The names of files and transactions come from the sink that made them.
            return self._problem(
                old,
                "it has output that is not committed, which only a sink with the same uid can "
                "commit: start a job with it once, so that it commits",
            )
        draft.uid = new
        drafts = self._drafts.values()
        self._drafts = {one.uid: one for one in drafts}
        return self._did(f"operator {old!r} renamed to {new!r}")

    def change_max_parallelism(self, uid: str, max_parallelism: int) -> Self:
        """Give an operator another number of key groups; its keyed state is written again."""
        draft = self._draft(uid)
        if draft is None:
            return self
        if not 0 < max_parallelism <= HIGHEST_MAX_PARALLELISM:
            return self._problem(uid, f"max parallelism {max_parallelism} is not in 1 to 32768")
        before, draft.max_parallelism = draft.max_parallelism, max_parallelism
        if max_parallelism < draft.parallelism:
            self._shrink(draft, max_parallelism)
        return self._did(f"max parallelism of {uid!r} from {before} to {max_parallelism}")

    def change_key(
        self,
        uid: str,
        key_type: TypeInformation,
        function: Callable[[str, DataFrame], DataFrame],
    ) -> Self:
        """Give all keyed states and timers of an operator other keys.

        `function` gets the name and the rows of each, and returns rows with new keys.
        """
        draft = self._draft(uid)
        if draft is None:
            return self
        changed: dict[str, Keyed] = {}
        for name, keyed in draft.keyed.items():
            frame = function(name, self._frame(draft, keyed))
            changed[name] = rows_of_state(name, keyed.info, frame.drop(_KEY_BYTES))
        draft.keyed, draft.key_type = changed, type_signature(key_type)
        return self._did(f"keys of {uid!r} changed to {draft.key_type}")

    # -- states -----------------------------------------------------------------------------

    def with_state(self, uid: str, rows: StateRows) -> Self:
        """Add a state, or the timers of a time domain, to an operator."""
        draft = self._draft(uid)
        if draft is None:
            return self
        if isinstance(rows, KeyedRows):
            if rows.name in draft.keyed:
                return self._problem(uid, "there is a state with this name already", rows.name)
            draft.keyed[rows.name] = rows
        else:
            name = rows.descriptor.name
            if name in draft.open_lists():
                return self._problem(uid, "there is a state with this name already", name)
            self._put_operator_state(draft, rows)
        name = rows.name if isinstance(rows, KeyedRows) else rows.descriptor.name
        return self._did(f"state {name!r} of {uid!r} added")

    def drop_state(self, uid: str, name: str) -> Self:
        """Leave a state out."""
        draft = self._draft(uid)
        if draft is None:
            return self
        if name in draft.keyed:
            del draft.keyed[name]
        elif name in draft.open_lists():
            del draft.lists[name]
        else:
            return self._unknown_state(draft, name)
        return self._did(f"state {name!r} of {uid!r} dropped")

    def transform_state(
        self,
        uid: str,
        name: str,
        function: Transform,
        descriptor: StateDescriptor | None = None,
    ) -> Self:
        """Replace the rows of a keyed state, or of timers, with those that a function returns.

        The function gets them with the columns that `read_state` gives, lists whole. With a
        `descriptor` the state gets its kind, type and name.
        """
        draft = self._draft(uid)
        if draft is None:
            return self
        keyed = draft.keyed.get(name)
        if keyed is None:
            return self._unknown_state(draft, name)
        info, new = keyed.info, name
        if descriptor is not None:
            info, new = info_of(descriptor, info.windows), descriptor.name
            if new != name and new in draft.keyed:
                return self._problem(uid, "there is a state with this name already", new)
        before = self._frame(draft, keyed)
        after = function(before)
        if _KEY_BYTES in before.columns and _KEY_BYTES not in after.columns:
            return self._problem(
                uid,
                f"its keys have no declared type: keep the column {_KEY_BYTES!r}, or give them a "
                "type with change_key",
                name,
            )
        rows = rows_of_state(new, info, after)
        draft.keyed = {
            (new if one == name else one): (rows if one == name else kept)
            for one, kept in draft.keyed.items()
        }
        changed = f" to {new!r}, a {info}" if descriptor is not None else ""
        return self._did(f"state {name!r} of {uid!r} transformed{changed}")

    # -- sources ----------------------------------------------------------------------------

    def with_source_positions(
        self,
        uid: str,
        positions: Mapping[str, int] | DataFrame,
        *,
        finished: bool = False,
        enumerator_state: bytes | None = None,
        name: str | None = None,
    ) -> Self:
        """Set where a source continues: the position of each of its splits.

        They are in a dict, or in the columns `split` and `position` of a DataFrame. A Kafka
        source's splits are `<topic>-<partition>`, and the position is the next offset.

        The watermarks of the source and of what is downstream of it start from the beginning:
        otherwise all that it reads again would be late.
        """
        if isinstance(positions, DataFrame):
            rows = positions.select("split", "position").collect()
            positions = {row["split"]: row["position"] for row in rows}
        draft = self._drafts.get(uid)
        if draft is None:
            most = self._max_parallelism
            draft = new_draft(uid, name or uid, OperatorKind.SOURCE, "", most, 1)
            self._drafts[uid] = draft
        for split, position in positions.items():
            if not isinstance(split, str) or type(position) is not int:
                self._problem(uid, f"split {split!r} has the position {position!r}, no int")
        if enumerator_state is None:
            enumerator_state = b"" if draft.source is None else draft.source.enumerator_state
        draft.source = SourceState(dict(positions), finished, enumerator_state)
        draft.has_new_positions = True
        return self._did(f"positions of {uid!r} set")

    # -- the end ----------------------------------------------------------------------------

    def dry_run(self, program: Any = None) -> SavepointReport:
        """Check everything and write nothing; return all problems.

        Rows are encoded and sorted as they would be to write them. `program` is the
        `StreamExecutionEnvironment` of a program that is to start from the savepoint: then its
        operators are compared, too.
        """
        jobs = WriteJobs(self._spark, None, "")
        drafts = list(self._drafts.values())
        return checked(jobs, drafts, self._problems, self._operations, program)

    def write(self, path: str | Path) -> str:
        """Write the savepoint; return its path.

        Its metadata is the last file: a process that dies before leaves no savepoint.

        Raises:
            BadSavepointContentError: something does not fit; all problems are named.
            SavepointExistsError: there is a savepoint at the path.
        """
        text = str(path)
        savepoint: Location = parse_location(text, self._options)
        if savepoint.name == METADATA:
            savepoint = savepoint.parent
        if self._problems:
            raise BadSavepointContentError(text, tuple(map(str, self._problems)))
        base, drafts = self._base, list(self._drafts.values())
        origins = (
            [Origin(self._operations, 0.0)] if base is None else base.origins(self._operations)
        )
        write_savepoint(self._spark, savepoint, drafts, base, origins)
        return str(savepoint)

    def close(self) -> None:
        """Let the job of a checkpoint delete it again; the end of the process does so, too."""
        if self._base is not None:
            self._base.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- helpers ----------------------------------------------------------------------------

    def _did(self, operation: str) -> Self:
        self._operations.append(operation)
        return self

    def _problem(self, uid: str, reason: str, state: str = "") -> Self:
        self._problems.append(Problem(uid, reason, state))
        return self

    def _draft(self, uid: str) -> OperatorDraft | None:
        draft = self._drafts.get(uid)
        if draft is None:
            known = ", ".join(map(repr, self._drafts)) or "none"
            self._problem(uid, f"there is no operator with this uid; there are: {known}")
        return draft

    def _unknown_state(self, draft: OperatorDraft, name: str) -> Self:
        names = [*draft.keyed, *draft.open_lists()]
        known = ", ".join(map(repr, names)) or "none"
        return self._problem(draft.uid, f"there is no such state; there are: {known}", name)

    def _frame(self, draft: OperatorDraft, keyed: Keyed) -> DataFrame:
        if isinstance(keyed, CarriedState):
            jobs = WriteJobs(self._spark, None, "")
            return jobs.state_frame(keyed.state, draft.parts)
        return keyed.frame

    def _put_operator_state(self, draft: OperatorDraft, rows: OperatorRows) -> None:
        descriptor = rows.descriptor
        try:
            values = collected(rows)
            if isinstance(descriptor, MapStateDescriptor):
                stored, problems = broadcast_map(draft.uid, descriptor, values)
                each = [stored] * draft.parallelism
            else:
                assert isinstance(descriptor, ListStateDescriptor)
                distribution = rows.distribution
                stored, problems = operator_list(draft.uid, descriptor, distribution, values)
                empty = StoredList(distribution, stored.type, [])
                each = [stored] + [empty] * (draft.parallelism - 1)
                if distribution is RedistributionMode.SPLIT:
                    each = _dealt(stored, draft.parallelism)
        except (ValueError, TypeError) as error:
            self._problem(draft.uid, str(error), descriptor.name)
            return
        self._problems += problems
        draft.open_lists()[descriptor.name] = each

    def _shrink(self, draft: OperatorDraft, parallelism: int) -> None:
        """Reduce the number of subtasks to that of key groups."""
        for name, parts in draft.open_lists().items():
            if parts and parts[0].distribution is RedistributionMode.BROADCAST:
                draft.lists[name] = parts[:parallelism]
            else:
                whole = [element for part in parts for element in part.elements]
                first = msgspec.structs.replace(parts[0], elements=whole)
                draft.lists[name] = _dealt(first, parallelism)
        draft.parallelism = parallelism


def _dealt(stored: StoredList, parallelism: int) -> list[StoredList]:
    """Split a list into one for each subtask, in order."""
    size, longer = divmod(len(stored.elements), parallelism)
    starts = [i * size + min(i, longer) for i in range(parallelism + 1)]
    return [
        msgspec.structs.replace(stored, elements=stored.elements[starts[i] : starts[i + 1]])
        for i in range(parallelism)
    ]
