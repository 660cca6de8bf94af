"""The driver's second phase: prepared transactions are committed, or their rows loaded again."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence

from penstock.connectors.committer import CommitRequest, Committer
from penstock.connectors.postgres.books import Books
from penstock.connectors.postgres.committables import OwedRows, decode_owed
from penstock.connectors.postgres.database import Connection, Database, driver, passes, told
from penstock.connectors.postgres.fence import end_connections
from penstock.connectors.postgres.identity import sink_in
from penstock.connectors.postgres.names import quoted_text
from penstock.connectors.postgres.preparing import (
    load_and_commit,
    prepared_gids,
    roll_back_prepared,
)
from penstock.connectors.postgres.row_files import RowFiles
from penstock.errors import (
    CorruptStagedRecordsError,
    LostPreparedRowsError,
    LostStagedFileError,
    PostgresSetupError,
    RefusedRowsError,
)

__all__ = ["TransactionCommitter"]

logger = logging.getLogger("penstock.connectors.postgres")

_MOST_NAMED = 10


class TransactionCommitter(Committer):
    """Commits what is prepared; what is not, it finds in the ledger or loads from its files."""

    def __init__(self, database: Database, books: Books, files: RowFiles) -> None:
        self._database = database
        self._books = books
        self._files = files
        self._connection: Connection | None = None
        self._has_lost_one = False
        self._is_waiting = False

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        visible: list[OwedRows] = []
        for at, request in enumerate(requests):
            owed = self._owed(request.get_committable())
            if not self._try(request, owed):
                # Those behind it wait: a later checkpoint must not show first.
                for waiting in requests[at + 1 :]:
                    waiting.retry_later()
                break
            visible.append(owed)
        for owed in visible:
            self._files.forget(owed.paths)

    def _owed(self, committable: bytes) -> OwedRows:
        owed = decode_owed(committable)
        # The directory of this job may have been moved since; another job's is where it said.
        is_mine = sink_in(owed.gid) == self._database.identity.key
        return owed.moved(self._files.root) if is_mine else owed

    def _try(self, request: CommitRequest, owed: OwedRows) -> bool:
        """Commit, and signal what came of it; false if the rows do not show."""
        try:
            if not self._commit(self._connected(), owed):
                request.signal_already_committed()
        except (LostStagedFileError, CorruptStagedRecordsError) as error:
            path = error.path if isinstance(error, LostStagedFileError) else error.place
            lost = LostPreparedRowsError(owed.gid, owed.table, path)
            lost.__cause__ = error
            request.signal_failed_with_known_reason(lost)
        except (RefusedRowsError, PostgresSetupError) as error:
            request.signal_failed_with_known_reason(error)
        except Exception as error:
            self._disconnect()
            if _may_pass(error):
                if not self._is_waiting:
                    logger.warning("%s: rows wait to be committed: %s", self._database, told(error))
                self._is_waiting = True
                request.retry_later(error)
            else:
                request.signal_failed_with_unknown_reason(error)
        else:
            self._is_waiting = False
            return True
        return False

    def _commit(self, connection: Connection, owed: OwedRows) -> bool:
        """Commit; false if that was done before."""
        psycopg = driver()
        if owed.prepared:
            try:
                connection.execute(f"COMMIT PREPARED {quoted_text(owed.gid)}")
            except psycopg.errors.UndefinedObject:
                pass
            except (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported) as e:
                remedy = f"let who may do it run COMMIT PREPARED '{owed.gid}'"
                raise PostgresSetupError(repr(self._database), told(e), remedy) from e
            else:
                return True
        if self._books.has(connection, owed.gid):
            return False
        return load_and_commit(connection, self._books, owed)

    def discard(self, gone: Sequence[bytes], kept: Sequence[bytes]) -> None:
        gids = {decode_owed(data).gid for data in kept}
        old = [owed for owed in map(self._owed, gone) if owed.gid not in gids]
        self._files.forget(path for owed in old for path in owed.paths)
        old_gids = [owed.gid for owed in old]
        try:
            self._forget(old_gids, gids)
        except Exception as error:
            self._disconnect()
            if not passes(error):
                raise
            # The connection may have broken long ago, and only now is that noticed.
            self._forget(old_gids, gids)

    def _forget(self, old: Sequence[str], keep: set[str]) -> None:
        connection = self._connected()
        self._books.strike(connection, old)
        below = self._database.identity.number
        roll_back_prepared(connection, self._database, below=below, keep=keep)

    def sweep(self, keep: Sequence[bytes]) -> None:
        held = [self._owed(data) for data in keep]
        gids = {owed.gid for owed in held}
        self._database.patiently("clearing up", lambda _: self._sweep(gids))
        self._files.sweep(path for owed in held for path in owed.paths)

    def _sweep(self, gids: set[str]) -> None:
        with self._database.connected("sweep") as connection:
            # A later attempt may have taken over since this one learned what to keep.
            self._books.check(connection)
            # What was restored is committed, so nobody waits for what older attempts prepared. A
            # savepoint may name it, but this attempt goes another way, with the same rows perhaps:
            # they would wait for it. Who goes back to the savepoint loads its files.
            mine = self._database.identity.number
            roll_back_prepared(connection, self._database, below=mine)
            roll_back_prepared(connection, self._database, below=mine + 1, keep=gids)
            self._books.strike_all_but(connection, gids)
            self._name_strangers(connection)

    def _name_strangers(self, connection: Connection) -> None:
        """Warn of what a job of the same name has prepared: nobody may ever come back for it."""
        mine = self._database.identity
        strangers = [
            gid
            for gid in prepared_gids(connection, "penstock-")
            if gid.endswith(f"-{mine.job}-{mine.step}") and not gid.startswith(mine.prefix)
        ]
        if strangers:
            logger.warning(
                "%s: another job named %s, or an earlier one without this checkpoint directory, "
                "has prepared transactions here; if it is gone for good, roll them back: %s",
                self._database,
                mine.job,
                "; ".join(f"ROLLBACK PREPARED '{gid}'" for gid in strangers[:_MOST_NAMED]),
            )

    def close(self) -> None:
        self._database.close()
        self._disconnect()

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            connection = self._database.connect("commit")
            if self._has_lost_one:
                # What the lost one was at must not keep this one waiting.
                name = self._database.identity.application_name("commit")
                end_connections(connection, name, self._database)
            self._connection, self._has_lost_one = connection, False
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._has_lost_one = True
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()


def _may_pass(error: Exception) -> bool:
    # "busy": the connection that was lost in the middle of this commit is still at it.
    errors = driver().errors
    waits = errors.ObjectNotInPrerequisiteState, errors.LockNotAvailable
    return passes(error) or isinstance(error, waits)
