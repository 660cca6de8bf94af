"""Committables that no sink wrote: refused before any connection to the database is opened."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.connectors.contracts.committing import commit_all
from penstock.connectors.postgres.names import SinkIdentity
from penstock.connectors.postgres.transactions.committable import (
    PostgresCommittable,
    RowBatch,
    encode,
)
from penstock.connectors.postgres.transactions.committer import PostgresCommitter
from penstock.connectors.staging.staged_output import StagedOutput
from penstock.connectors.staging.staging_directory import StagingDirectory
from penstock.errors import CommitFailedError, PostgresSetupError, UnsafeNameError

IDENTITY = SinkIdentity("job", "instance", "step", "a1")
OTHER = SinkIdentity("job", "other", "step", "a1")


def committer(directory: Path) -> PostgresCommitter:
    database: Any = SimpleNamespace(identity=IDENTITY)
    staging = StagingDirectory(directory / "step", "a1")
    return PostgresCommitter(database, cast(Any, None), staging, "orders")


def committable(gid: str, root: str, name: str = "rows") -> PostgresCommittable:
    batch = RowBatch(("a",), 1, [StagedOutput(1, b"", name)])
    return PostgresCommittable(gid, "orders", "orders; DROP TABLE orders", [batch], True, root)


@pytest.mark.parametrize(
    ("gid", "root"),
    [
        ("somebody's transaction", ""),
        ("penstock-", ""),
        (IDENTITY.gid(1, 0, "n").replace("-a1-", "-x-"), ""),
        (OTHER.gid(1, 0, "n"), "/etc"),
        (OTHER.gid(1, 0, "n"), "/jobs/step/.."),
    ],
)
def test_a_forged_committable_is_refused(tmp_path: Path, gid: str, root: str) -> None:
    forged = encode(committable(gid, root))
    with pytest.raises(CommitFailedError, match="UnsafeNameError") as caught:
        commit_all(committer(tmp_path), [forged], retries=0, pause=lambda _: None, step="rows")
    assert caught.value.kind == "impossible"


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd"])
def test_a_forged_file_name_is_refused(tmp_path: Path, name: str) -> None:
    ours = committer(tmp_path)
    own = ours._here(ours._decode(encode(committable(IDENTITY.gid(1, 0, "n"), "/etc", name))))
    assert own.root == str(tmp_path / "step")
    with pytest.raises(UnsafeNameError):
        _ = own.paths


def test_rows_are_loaded_into_the_sinks_own_table_whatever_a_snapshot_says(tmp_path: Path) -> None:
    class Catalog:
        """Answers that there is a table, and records what it was asked."""

        statements: list[str]

        def __init__(self) -> None:
            self.statements = []

        def execute(self, statement: str, parameters: Any = ()) -> Any:
            self.statements.append(f"{statement} {parameters}")
            row = (1, 'public."orders"', True)
            return SimpleNamespace(fetchone=lambda: row, fetchall=list)

    catalog, gid = Catalog(), IDENTITY.gid(1, 0, "n")
    mine = committable(gid, "")
    assert committer(tmp_path)._target(cast(Any, catalog), mine) == 'public."orders"'
    assert not any("DROP" in statement for statement in catalog.statements)
    other = PostgresCommittable(gid, "users", "users", [], False)
    with pytest.raises(PostgresSetupError, match=r"rows for table 'users'.*set_table\('users'\)"):
        committer(tmp_path)._target(cast(Any, catalog), other)
