"""The second phase of the commit: commits prepared transactions, or loads their rows again."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from penstock.connectors.contracts.committer import CommitRequest, Committer
from penstock.connectors.postgres.database import (
    Connection,
    Database,
    ReusableConnection,
    driver,
    is_transient,
    server_message,
)
from penstock.connectors.postgres.names import check_gid, quoted_text, sink_key_of
from penstock.connectors.postgres.table import describe_table
from penstock.connectors.postgres.transactions.committable import (
    PostgresCommittable,
    decode_committable,
)
from penstock.connectors.postgres.transactions.fencing import terminate_connections
from penstock.connectors.postgres.transactions.ledger import CommitLedger
from penstock.connectors.postgres.transactions.prepared import (
    commit_from_files,
    prepared_gids,
    roll_back_prepared,
)
from penstock.connectors.staging.staging_directory import StagingDirectory
from penstock.errors import (
    CorruptStagedRecordsError,
    LostPreparedRowsError,
    LostStagedFileError,
    PostgresSetupError,
    RefusedRowsError,
    UnsafeNameError,
    UnsuitableTableError,
)

logger = logging.getLogger("penstock.connectors.postgres")

_PURPOSE = "commit"
_MAX_NAMED = 10


class PostgresCommitter(Committer):
    """Commits what is prepared; what is not is in the ledger, or loaded from its files."""

    def __init__(
        self, database: Database, ledger: CommitLedger, staging: StagingDirectory, table: str
    ) -> None:
        self._database = database
        self._table = table
        self._ledger = ledger
        self._staging = staging
        self._connection = ReusableConnection(database, _PURPOSE, self._on_connect)
        self._has_warned = False

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        committed: list[PostgresCommittable] = []
        for at, request in enumerate(requests):
            committable = self._try_decode(request)
            if committable is None or not self._try_commit(request, committable):
                # The rest waits: a later checkpoint must not become visible first.
                for later in requests[at + 1 :]:
                    later.retry_later()
                break
            committed.append(committable)
        # After the commits: until a row is committed its file is the only durable copy. A crash in
        # between leaves files that the next sweep deletes.
        self._remove(committed)

    def _remove(self, committables: Sequence[PostgresCommittable]) -> None:
        here = [self._here(one) for one in committables]
        # Those of savepoints are left to the sweep: nearly all prepared transactions have none.
        own = [one for one in here if not one.prepared and self._is_own(one)]
        uploads = [one.upload for one in own if one.upload]
        self._staging.remove([path for one in here for path in one.paths], uploads)

    def _try_decode(self, request: CommitRequest) -> PostgresCommittable | None:
        try:
            return self._decode(request.get_committable())
        except UnsafeNameError as error:
            request.signal_failed_with_known_reason(error)
        return None

    def _decode(self, data: bytes) -> PostgresCommittable:
        committable = decode_committable(data)
        check_gid(committable.gid)
        self._directory(committable)  # its name is checked before anything is done
        return committable

    def _is_own(self, committable: PostgresCommittable) -> bool:
        return sink_key_of(committable.gid) == self._database.identity.key

    def _directory(self, committable: PostgresCommittable) -> StagingDirectory:
        """Return where the files of a committable are.

        This job's directory may have been moved since; another job's is where it was.
        """
        if self._is_own(committable):
            return self._staging
        return self._staging.of_other_job(committable.root)

    def _here(self, committable: PostgresCommittable) -> PostgresCommittable:
        """Return the committable with its files in the local directory."""
        return committable.moved(self._directory(committable).root)

    def _try_commit(self, request: CommitRequest, committable: PostgresCommittable) -> bool:
        """Commit and signal the outcome; False unless the rows are visible."""
        try:
            if not self._commit(self._connection.get(), committable):
                request.signal_already_committed()
        except (LostStagedFileError, CorruptStagedRecordsError) as error:
            path = error.path if isinstance(error, LostStagedFileError) else error.place
            lost = LostPreparedRowsError(committable.gid, committable.table, path)
            lost.__cause__ = error
            request.signal_failed_with_known_reason(lost)
        except (
            RefusedRowsError,
            PostgresSetupError,
            UnsafeNameError,
            UnsuitableTableError,
        ) as error:
            request.signal_failed_with_known_reason(error)
        except Exception as error:
            self._connection.discard()
            if not _is_retryable(error):
                request.signal_failed_with_unknown_reason(error)
                return False
            if not self._has_warned:
                reason = server_message(error)
                logger.warning("%s: committing rows is retried: %s", self._database, reason)
            self._has_warned = True
            request.retry_later(error)
        else:
            self._has_warned = False
            return True
        return False

    def _commit(self, connection: Connection, committable: PostgresCommittable) -> bool:
        """Commit; False if that was done before."""
        errors = driver().errors
        gid = committable.gid
        if committable.prepared:
            try:
                connection.execute(f"COMMIT PREPARED {quoted_text(gid)}")
            except errors.UndefinedObject:
                # Committed before a crash, or never prepared, or rolled back: the ledger, which the
                # transaction itself wrote, says which.
                pass
            except (errors.InsufficientPrivilege, errors.FeatureNotSupported) as error:
                remedy = f"run COMMIT PREPARED '{gid}' as its owner"
                reason = server_message(error)
                raise PostgresSetupError(repr(self._database), reason, remedy) from error
            else:
                return True
        if self._ledger.contains(connection, gid):
            return False
        target, here = self._target(connection, committable), self._here(committable)
        self._directory(committable).fetch(committable.upload, here.files)
        return commit_from_files(connection, self._ledger, here, target)

    def _target(self, connection: Connection, committable: PostgresCommittable) -> str:
        """Return the quoted name of the sink's table: from the catalog, never from a snapshot."""
        if committable.table != self._table:
            reason = f"the snapshot holds rows for table {committable.table!r}"
            remedy = f"restore it with set_table({committable.table!r}), not {self._table!r}"
            raise PostgresSetupError(repr(self._database), reason, remedy)
        return describe_table(connection, self._table).target

    def discard(self, discarded: Sequence[bytes], retained: Sequence[bytes]) -> None:
        keep = {decode_committable(data).gid for data in retained}
        old = [one for one in map(self._decode, discarded) if one.gid not in keep]
        self._remove(old)
        gids = [one.gid for one in old]
        try:
            self._delete(gids, keep)
        except Exception as error:
            self._connection.discard()
            if not is_transient(error):
                raise
            # The connection may have broken long ago, which only shows now.
            self._delete(gids, keep)

    def _delete(self, old: Sequence[str], keep: set[str]) -> None:
        connection = self._connection.get()
        self._ledger.delete(connection, old)
        below = self._database.identity.number
        roll_back_prepared(self._database, connection, below=below, keep=keep)

    def sweep(self, keep: Sequence[bytes]) -> None:
        kept = [self._decode(data) for data in keep]
        gids = {committable.gid for committable in kept}
        self._database.run("sweeping", "sweep", partial(self._sweep, gids))
        here = [self._here(one) for one in kept]
        paths = {path for one in here for path in one.paths}
        self._staging.sweep(paths, {one.upload for one in here})

    def _sweep(self, gids: set[str], connection: Connection) -> None:
        # A later attempt may have started since this one determined what to keep.
        self._ledger.check_fence(connection)
        # What was restored is committed by now, so no attempt needs what older ones prepared. A
        # savepoint may name it, but this attempt may write the same rows again and would wait
        # for their locks. A job that restores the savepoint loads its files.
        own = self._database.identity.number
        roll_back_prepared(self._database, connection, below=own)
        roll_back_prepared(self._database, connection, below=own + 1, keep=gids)
        self._ledger.delete_all_except(connection, gids)
        self._warn_about_other_jobs(connection)

    def _warn_about_other_jobs(self, connection: Connection) -> None:
        """Warn about prepared transactions of another job of this name, which may be orphaned."""
        own = self._database.identity
        others = [
            gid
            for gid in prepared_gids(connection, "penstock-")
            if gid.endswith(f"-{own.job}-{own.step}") and not gid.startswith(own.prefix)
        ]
        if others:
            logger.warning(
                "%s: another job named %s, or an earlier one with another checkpoint directory, "
                "has prepared transactions here; if it will not run again, roll them back: %s",
                self._database,
                own.job,
                "; ".join(f"ROLLBACK PREPARED '{gid}'" for gid in others[:_MAX_NAMED]),
            )

    def close(self) -> None:
        self._database.close()
        self._connection.discard()

    def _on_connect(self, connection: Connection, is_replacement: bool) -> None:
        if is_replacement:
            # Whatever the lost connection is still executing must not block this one.
            name = self._database.identity.application_name(_PURPOSE)
            terminate_connections(connection, name, self._database)


def _is_retryable(error: Exception) -> bool:
    # A prepared transaction is "busy" while the lost connection is still committing it.
    errors = driver().errors
    busy = errors.ObjectNotInPrerequisiteState, errors.LockNotAvailable
    return is_transient(error) or isinstance(error, busy)
