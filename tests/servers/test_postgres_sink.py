"""The PostgreSQL sink on a server that stays up."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.common import Row, Types
from penstock.common.types import RowKind
from penstock.connectors.contracts.committing import commit_all
from penstock.connectors.contracts.sink import DeliveryGuarantee
from penstock.connectors.postgres import database
from penstock.connectors.postgres.sink import PostgresSinkBuilder
from penstock.connectors.postgres.transactions.ledger import ledger_ddl
from penstock.errors import (
    CommitFailedError,
    FencedError,
    PostgresSetupError,
    PostgresUnreachableError,
    RefusedRowsError,
    UnsuitableTableError,
)
from penstock.testing.servers.postgres_server import PostgresServer
from tests.contracts.sink_harness import Attempt, Case
from tests.servers.postgres_sink_case import (
    lines_in,
    lines_sink,
    lines_table,
    new_schema,
    prepared,
    run,
    schema_of,
    single_phase_case,
    sink_into,
    two_phase_case,
    upsert_case,
)

pytestmark = pytest.mark.postgres

ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, amount numeric(10, 2), note text DEFAULT 'none')"


def orders(postgres: Any) -> tuple[str, PostgresSinkBuilder]:
    dsn = new_schema(postgres)
    run(dsn, ORDERS)
    return dsn, sink_into(dsn, "orders")


def case_of(builder: PostgresSinkBuilder, type_info: Any = None) -> Case:
    return Case(builder.build(), list, record=lambda record: record, type_info=type_info)


@pytest.fixture(params=[two_phase_case, single_phase_case], ids=["two phases", "one phase"])
def case(request: pytest.FixtureRequest, postgres: Any, tmp_path: Path) -> Any:
    return request.param(postgres, tmp_path)


def test_rows_become_visible_when_their_checkpoint_is_committed(case: Case, tmp_path: Path) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], ["b"])
    attempt.publish(["c"], [])
    cut = attempt.snapshot()
    assert (case.shown(), cut.state) == ([], [])
    assert attempt.commit(cut.committables).committed == 2
    assert sorted(case.shown()) == ["a", "b", "c"]
    assert attempt.commit(cut.committables).already_committed == 2
    assert case.leftovers() == []


def test_only_two_phase_commit_writes_rows_at_the_barrier(postgres: Any, tmp_path: Path) -> None:
    for make, count in ((two_phase_case, 2), (single_phase_case, 0)):
        case = make(postgres, tmp_path / make.__name__)
        attempt = Attempt(case, tmp_path / make.__name__)
        attempt.publish(["a"], ["b"])
        attempt.snapshot()
        gids = [str(path) for path in case.leftovers()]
        assert len(gids) == count
        assert all(len(gid) < 200 and gid.startswith("penstock-") for gid in gids)


def test_a_hundred_thousand_rows_keep_their_order(case: Case, tmp_path: Path) -> None:
    attempt = Attempt(case, tmp_path)
    texts = [f"{number} \\ and\ta tab" for number in range(100_000)]
    attempt.publish(texts[:60_000], [])
    attempt.publish(texts[60_000:60_001], [])
    attempt.publish(texts[60_001:], [])
    attempt.commit(attempt.snapshot().committables)
    assert case.shown() == texts


def test_rows_in_files_and_in_acknowledgements_alternate(case: Case, tmp_path: Path) -> None:
    attempt = Attempt(case, tmp_path)
    texts = ["small", "x" * 100_000, *(f"{n} {'y' * 5000}" for n in range(20)), "z" * 90_000, "end"]
    for text in texts:
        attempt.publish([text], [])
    attempt.commit(attempt.snapshot().committables)
    assert case.shown() == texts
    assert case.leftovers() == []


def test_a_rolled_back_transaction_is_loaded_again_from_its_files(
    case: Case, tmp_path: Path, postgres: Any
) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a" * 100_000], ["b"])
    committables = attempt.snapshot().committables
    for gid in case.leftovers():
        if gid.name.startswith("penstock-"):
            run(dsn_of(case), f"ROLLBACK PREPARED '{gid}'")
    assert attempt.commit(committables).committed == 2
    assert attempt.commit(committables).already_committed == 2
    assert sorted(case.shown()) == ["a" * 100_000, "b"]


def dsn_of(case: Case) -> str:
    return str(case.sink._settings.dsn._text)  # type: ignore[attr-defined]


def test_a_transaction_committed_by_a_dba_or_the_sink_is_not_repeated(
    postgres: Any, tmp_path: Path
) -> None:
    case = two_phase_case(postgres, tmp_path)
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], [])
    committables = attempt.snapshot().committables
    (gid,) = prepared(dsn_of(case))
    run(dsn_of(case), f"COMMIT PREPARED '{gid}'")
    assert attempt.commit(committables).already_committed == 1
    assert case.shown() == ["a"]


def test_lost_rows_fail_the_commit_with_their_names(case: Case, tmp_path: Path) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish(["x" * 100_000], [])
    committables = attempt.snapshot().committables
    for gid in prepared(dsn_of(case)):
        run(dsn_of(case), f"ROLLBACK PREPARED '{gid}'")
    for path in (tmp_path / "work").rglob("*.rows"):
        path.unlink()
    with pytest.raises(CommitFailedError, match=r"rows of table lines are lost.*penstock-") as info:
        attempt.commit(committables)
    assert info.value.kind == "impossible"
    assert case.shown() == []


def test_the_sweep_rolls_back_what_no_snapshot_holds(postgres: Any, tmp_path: Path) -> None:
    case = two_phase_case(postgres, tmp_path)
    first = Attempt(case, tmp_path)
    first.publish(["kept"], [])
    kept = first.snapshot(1).committables
    first.publish(["orphan" * 20_000], ["orphan"])
    first.snapshot(2)
    assert len(prepared(dsn_of(case))) == 3
    first.sweep(kept)
    assert len(case.leftovers()) == 1
    first._name = "a2"
    first.sweep(kept)
    # Of older attempts not even what is kept: it would lock out who writes the same rows again.
    assert case.leftovers() == []
    second = Attempt(case, tmp_path, "a2")
    second.commit(kept)
    second.sweep([])
    assert (case.shown(), case.leftovers()) == (["kept"], [])
    assert run(dsn_of(case), "SELECT count(*) FROM penstock_ledger") == [(0,)]


@pytest.mark.parametrize("swept", [True, False], ids=["swept", "with an unreadable snapshot"])
def test_an_unused_savepoint_does_not_block_the_same_rows(
    postgres: Any, tmp_path: Path, *, swept: bool
) -> None:
    case = two_phase_case(postgres, tmp_path)
    run(dsn_of(case), "ALTER TABLE lines ADD UNIQUE (text)")
    large = "l" * 100_000
    first = Attempt(case, tmp_path)
    first.publish(["a"], [large])
    savepoint = first.snapshot(6).committables
    # Killed before checkpoint 7: what is restored is checkpoint 5, which held nothing.
    second = Attempt(case, tmp_path, "a2")
    if swept:
        second.sweep(savepoint)
    second.publish(["a"], ["b"])
    second.commit(second.snapshot(7).committables)
    assert sorted(case.shown()) == ["a", "b"]
    # A job that restores the savepoint finds its rows in their files.
    run(dsn_of(case), "DELETE FROM lines")
    assert Attempt(case, tmp_path, "a3").commit(savepoint).committed == 2
    assert sorted(case.shown()) == ["a", large]


def test_a_sweep_leaves_other_jobs_alone(postgres: Any, tmp_path: Path) -> None:
    case = two_phase_case(postgres, tmp_path)
    other = Attempt(case, tmp_path, job="other")
    other.publish(["other"], [])
    committables = other.snapshot().committables
    Attempt(case, tmp_path, "a7").sweep([])
    assert len(prepared(dsn_of(case))) == 1
    assert other.commit(committables).committed == 1


def test_another_job_commits_what_a_savepoint_holds_and_neither_repeats_it(
    case: Case, tmp_path: Path
) -> None:
    original = Attempt(case, tmp_path)
    original.publish(["a" * 100_000], ["b"])
    saved = original.snapshot().committables
    other = Attempt(case, tmp_path, job="other")
    assert other.commit(saved).committed == 2
    assert original.commit(saved).already_committed == 2
    other.sweep([])
    other.discard(saved, [])
    assert original.commit(saved).already_committed == 2
    assert len(case.shown()) == 2


def test_the_ledger_deletes_discarded_checkpoints_and_keeps_others(
    case: Case, tmp_path: Path
) -> None:
    attempt = Attempt(case, tmp_path)
    cuts = []
    for checkpoint in (1, 2):
        attempt.publish([str(checkpoint)], [])
        cuts.append(attempt.snapshot(checkpoint).committables)
        attempt.commit(cuts[-1])
    attempt.discard([*cuts[0], *cuts[1]], cuts[1])
    ledger = "SELECT count(*) FROM penstock_ledger"
    assert run(dsn_of(case), ledger) == [(1,)]
    assert attempt.commit(cuts[1]).already_committed == 1
    attempt.discard(cuts[1], [])
    assert run(dsn_of(case), ledger) == [(0,)]


def test_an_older_attempt_can_neither_prepare_nor_load(case: Case, tmp_path: Path) -> None:
    old = Attempt(case, tmp_path)
    old_committer = old.committer()
    old.publish(["old"], [])
    pre_commit = old.publisher.at_barrier(1, flush=False)
    Attempt(case, tmp_path, "a2")
    with pytest.raises((FencedError, CommitFailedError), match="took over with attempt a2"):
        commit_all(
            old_committer,
            pre_commit().committables,
            retries=3,
            pause=lambda _: None,
            step="the sink",
        )
    old_committer.close()
    with pytest.raises(FencedError):
        Attempt(case, tmp_path, "a1")
    assert case.shown() == []


def test_a_job_of_the_same_name_elsewhere_is_not_an_older_attempt(
    postgres: Any, tmp_path: Path
) -> None:
    case = two_phase_case(postgres, tmp_path)
    Attempt(case, tmp_path / "here", "a5")
    elsewhere = Attempt(case, tmp_path / "elsewhere", "a1")
    elsewhere.publish(["a"], [])
    elsewhere.commit(elsewhere.snapshot().committables)
    assert case.shown() == ["a"]


def test_prepared_transactions_of_another_job_of_the_name_are_warned_about(
    postgres: Any, tmp_path: Path, caplog: Any
) -> None:
    case = two_phase_case(postgres, tmp_path)
    gone = Attempt(case, tmp_path / "gone")
    gone.publish(["a"], [])
    gone.snapshot()
    (gid,) = prepared(dsn_of(case))
    here = Attempt(case, tmp_path / "here")
    here._job = gone._job  # the same name, and another birth
    with caplog.at_level(logging.WARNING):
        here.sweep([])
    assert f"roll them back: ROLLBACK PREPARED '{gid}'" in caplog.text
    assert prepared(dsn_of(case)) == [gid]


def test_later_rows_wait_for_earlier_ones_that_fail(postgres: Any, tmp_path: Path) -> None:
    dsn, builder = orders(postgres)
    attempt = Attempt(case_of(builder.set_columns("id").set_two_phase(False)), tmp_path)
    committables = []
    for checkpoint in (1, 2):
        attempt.publish([(checkpoint,)], [])  # type: ignore[list-item]
        committables += attempt.snapshot(checkpoint).committables
    run(dsn, "INSERT INTO orders VALUES (1)")
    with pytest.raises(CommitFailedError, match="1 commit failed"):
        attempt.commit(committables)
    assert run(dsn, "SELECT id FROM orders") == [(1,)]
    run(dsn, "DELETE FROM orders")
    assert attempt.commit(committables).committed == 2


def test_a_violated_constraint_names_the_row_and_leaves_nothing(
    postgres: Any, tmp_path: Path
) -> None:
    dsn, builder = orders(postgres)
    run(dsn, "INSERT INTO orders VALUES (7)")
    attempt = Attempt(case_of(builder.set_columns("id", "amount")), tmp_path)
    attempt.publish([(6, 1), (7, 2)], [])  # type: ignore[list-item]
    with pytest.raises(RefusedRowsError, match=r"orders refuses.*orders_pkey.*Key \(id\)=\(7\)"):
        attempt.snapshot()
    assert prepared(dsn) == []
    single = builder.set_two_phase(False)
    attempt = Attempt(case_of(single), tmp_path, "a2")
    attempt.publish([(6, 1), (7, 2)], [])  # type: ignore[list-item]
    committables = attempt.snapshot().committables
    with pytest.raises(CommitFailedError, match=r"Key \(id\)=\(7\)"):
        attempt.commit(committables)
    assert run(dsn, "SELECT id FROM orders") == [(7,)]
    run(dsn, "DELETE FROM orders")
    assert attempt.commit(committables).committed == 1


@pytest.mark.parametrize("two_phase", [True, False])
def test_a_constraint_that_is_checked_last_names_the_row_too(
    postgres: Any, tmp_path: Path, two_phase: bool
) -> None:
    dsn, builder = orders(postgres)
    run(dsn, "ALTER TABLE orders ADD UNIQUE (note) DEFERRABLE INITIALLY DEFERRED")
    case = case_of(builder.set_columns("id", "note").set_two_phase(two_phase))
    attempt = Attempt(case, tmp_path)
    attempt.publish([(1, "a"), (2, "a")], [])  # type: ignore[list-item]
    with pytest.raises((RefusedRowsError, CommitFailedError), match=r"Key \(note\)=\(a\)"):
        attempt.commit(attempt.snapshot().committables)
    assert (prepared(dsn), run(dsn, "SELECT * FROM orders")) == ([], [])


def test_subtasks_that_share_a_unique_key_get_a_helpful_error(
    postgres: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, builder = orders(postgres)
    settings = database._SETTINGS.replace("30s", "1s")
    monkeypatch.setattr(database, "_SETTINGS", settings)
    attempt = Attempt(case_of(builder.set_columns("id")), tmp_path)
    attempt.publish([(7,)], [(7,)])  # type: ignore[list-item]
    with pytest.raises(RefusedRowsError, match=r"waited too long.*with the same unique key"):
        attempt.snapshot()


def test_a_value_of_the_wrong_type_names_its_line(postgres: Any, tmp_path: Path) -> None:
    _, builder = orders(postgres)
    attempt = Attempt(case_of(builder.set_columns("id")), tmp_path)
    attempt.publish([(1,), ("two",)], [])  # type: ignore[list-item]
    with pytest.raises(RefusedRowsError, match=r'"two".*line 2, column id'):
        attempt.snapshot()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b.set_table("Orders"), "table Orders cannot store.*no such table"),
        (lambda b: b.set_columns("id", "price"), "no writable column 'price'.*id, amount, note"),
        (lambda b: b.set_columns("amount"), "column 'id' is NOT NULL without a default"),
        (lambda b: b.set_json_columns("doc"), "no writable column 'doc'"),
        (lambda b: b.set_key_columns("amount"), "key column 'amount' may be NULL"),
        (lambda b: b.set_key_columns("place"), "no writable column 'place'"),
    ],
)
def test_an_unsuitable_table_is_rejected_at_the_start(
    postgres: Any, tmp_path: Path, change: Any, message: str
) -> None:
    _, builder = orders(postgres)
    with pytest.raises(UnsuitableTableError, match=message):
        Attempt(case_of(change(builder)), tmp_path)


def test_keys_require_a_unique_index(postgres: Any, tmp_path: Path) -> None:
    dsn, builder = orders(postgres)
    run(dsn, "ALTER TABLE orders ALTER amount SET NOT NULL")
    with pytest.raises(UnsuitableTableError, match=r"no primary key or unique index on \(amount\)"):
        Attempt(case_of(builder.set_key_columns("amount")), tmp_path)
    run(dsn, "CREATE UNIQUE INDEX ON orders (amount)")
    Attempt(case_of(builder), tmp_path)


def test_lists_for_a_json_column_are_rejected_unless_declared(
    postgres: Any, tmp_path: Path
) -> None:
    dsn = new_schema(postgres)
    run(dsn, "CREATE TABLE tags (id int, tags jsonb)")
    builder = sink_into(dsn, "tags").set_columns("id", "tags")
    attempt = Attempt(case_of(builder), tmp_path)
    with pytest.raises(UnsuitableTableError, match=r"'tags' is jsonb.*set_json_columns\('tags'\)"):
        attempt.publish([(1, [])], [])  # type: ignore[list-item]
    attempt = Attempt(case_of(builder.set_json_columns("tags")), tmp_path, "a2")
    attempt.publish([(1, []), (2, ["a\n"]), (3, None)], [])  # type: ignore[list-item]
    attempt.commit(attempt.snapshot().committables)
    assert run(dsn, "SELECT tags FROM tags ORDER BY id") == [([],), (["a\n"],), (None,)]


def test_columns_are_those_of_the_row_type(postgres: Any, tmp_path: Path) -> None:
    dsn, builder = orders(postgres)
    row_type = Types.ROW_NAMED(["amount", "id"], [Types.BIG_DEC(), Types.INT()])
    attempt = Attempt(case_of(builder, row_type), tmp_path)
    attempt.publish([Row("1.50", 1), Row(amount="2", id=2)], [])  # type: ignore[list-item]
    attempt.commit(attempt.snapshot().committables)
    rows = run(dsn, "SELECT id, amount::text, note FROM orders ORDER BY id")
    assert rows == [(1, "1.50", "none"), (2, "2.00", "none")]


def test_rows_without_names_are_written_to_all_columns_in_order(
    postgres: Any, tmp_path: Path
) -> None:
    dsn, builder = orders(postgres)
    attempt = Attempt(case_of(builder), tmp_path)
    attempt.publish([(1, "1.5", "a"), Row(2, None, "b")], [])  # type: ignore[list-item]
    attempt.commit(attempt.snapshot().committables)
    assert run(dsn, "SELECT id, note FROM orders ORDER BY id") == [(1, "a"), (2, "b")]
    with pytest.raises(UnsuitableTableError, match="4 values, but it has 3 writable columns"):
        attempt.publish([(1, 2, 3, 4)], [])  # type: ignore[list-item]


def test_two_phase_commit_on_a_server_that_cannot_prepare_is_rejected(tmp_path: Path) -> None:
    with PostgresServer(settings={"max_prepared_transactions": "0"}) as server:
        case = two_phase_case(server, tmp_path)
        with pytest.raises(PostgresSetupError, match=r"transactions is 0.*set_two_phase\(False\)"):
            Attempt(case, tmp_path)
        case = single_phase_case(server, tmp_path / "one")
        attempt = Attempt(case, tmp_path / "one")
        attempt.publish(["a"], [])
        attempt.commit(attempt.snapshot().committables)
        assert case.shown() == ["a"]


def test_few_prepared_transactions_are_warned_about(
    postgres: Any, tmp_path: Path, caplog: Any
) -> None:
    case = two_phase_case(postgres, tmp_path)
    with caplog.at_level(logging.WARNING):
        Attempt(case, tmp_path, parallelism=33)
    assert "max_prepared_transactions is 64" in caplog.text


def test_a_role_without_create_privilege_needs_existing_ledger_tables(
    postgres: Any, tmp_path: Path
) -> None:
    dsn = lines_table(postgres)
    role, schema = f"writer_{schema_of(dsn)}", schema_of(dsn)
    run(dsn, f"CREATE ROLE {role} LOGIN", f"GRANT ALL ON lines TO {role}")
    run(dsn, f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    sink = lines_sink(psycopg.conninfo.make_conninfo(dsn, user=role)).build()
    case = Case(sink, lambda: lines_in(dsn))
    with pytest.raises(PostgresSetupError, match=r"permission denied.*CREATE TABLE IF NOT EXISTS"):
        Attempt(case, tmp_path)
    tables = f"ON penstock_fence, penstock_ledger TO {role}"
    run(dsn, *ledger_ddl(schema), f"GRANT SELECT, INSERT, UPDATE, DELETE {tables}")
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], [])
    attempt.commit(attempt.snapshot().committables)
    assert case.shown() == ["a"]


def test_a_password_is_never_shown(postgres: Any, tmp_path: Path, caplog: Any) -> None:
    dsn = lines_table(postgres)
    with_password = psycopg.conninfo.make_conninfo(dsn, password="geheim")
    case = Case(lines_sink(with_password).build(), list)
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], [])
    assert b"geheim" not in b"".join(attempt.snapshot().committables)
    assert "geheim" not in repr(case.sink)
    nowhere = lines_sink("host=127.0.0.1 port=1 dbname=x password=geheim").set_max_retries(1)
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(PostgresUnreachableError, match=r"PostgreSQL at 127\.0\.0\.1:1/x"),
    ):
        Attempt(Case(nowhere.build(), list), tmp_path, "a2")
    assert "failed, retrying" in caplog.text
    assert "geheim" not in caplog.text


def test_a_missing_database_is_not_retried(postgres: Any, tmp_path: Path) -> None:
    sink = lines_sink(postgres.dsn("nowhere")).build()
    with pytest.raises(PostgresUnreachableError, match='"nowhere" does not exist'):
        Attempt(Case(sink, list), tmp_path)


def test_the_ledger_may_be_in_another_schema(postgres: Any, tmp_path: Path) -> None:
    dsn = lines_table(postgres)
    case = Case(lines_sink(dsn).set_ledger_schema('Our "ledger"').build(), lambda: lines_in(dsn))
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], [])
    attempt.commit(attempt.snapshot().committables)
    assert run(dsn, 'SELECT row_count FROM "Our ""ledger""".penstock_ledger') == [(1,)]


# -- by key and appended ------------------------------------------------------------------------


def test_the_last_row_of_a_key_counts_within_and_across_micro_batches(
    postgres: Any, tmp_path: Path
) -> None:
    dsn, builder = orders(postgres)
    attempt = Attempt(case_of(builder.set_columns("id", "note").set_key_columns("id")), tmp_path)
    attempt.publish([(1, "a"), (2, "b"), (1, "c")], [(3, "d")])  # type: ignore[list-item]
    everything = "SELECT id, note FROM orders ORDER BY id"
    assert run(dsn, everything) == [(1, "c"), (2, "b"), (3, "d")]
    attempt.publish([(2, None)], [])  # type: ignore[list-item]
    assert run(dsn, everything) == [(1, "c"), (2, None), (3, "d")]
    assert attempt.snapshot().committables == []
    assert attempt.optional_committer() is None


def test_repeated_upserts_change_nothing(postgres: Any, tmp_path: Path) -> None:
    case = upsert_case(postgres, tmp_path)
    for name in ("a1", "a2"):
        attempt = Attempt(case, tmp_path, name)
        attempt.publish(["a", "b" * 100_000], ["c"])
        attempt.publish(["d"], [])
    assert sorted(case.shown()) == ["a", "b" * 100_000, "c", "d"]
    assert case.leftovers() == []


def test_upserts_may_have_different_columns(postgres: Any, tmp_path: Path) -> None:
    dsn, builder = orders(postgres)
    for name, columns in (("a1", ["id", "note"]), ("a2", ["id", "amount"]), ("a3", ["id"])):
        types = Types.ROW_NAMED(columns, [Types.INT() for _ in columns])
        attempt = Attempt(case_of(builder.set_key_columns("id"), types), tmp_path, name)
        attempt.publish([Row(*range(1, len(columns) + 1))], [])  # type: ignore[list-item]
        attempt.publish([Row(*range(2, len(columns) + 2))], [])  # type: ignore[list-item]
    everything = "SELECT id, amount::int, note FROM orders ORDER BY id"
    assert run(dsn, everything) == [(1, 2, "2"), (2, 3, "3")]


def test_rows_of_kind_delete_delete_rows(postgres: Any, tmp_path: Path) -> None:
    dsn, builder = orders(postgres)
    attempt = Attempt(case_of(builder.set_columns("id", "note").set_key_columns("id")), tmp_path)
    rows = [
        Row(1, "a"),
        Row(2, "b"),
        Row.of_kind(RowKind.UPDATE_BEFORE, 1, "a"),
        Row.of_kind(RowKind.UPDATE_AFTER, 1, "A"),
        Row.of_kind(RowKind.DELETE, 2, "b"),
        Row.of_kind(RowKind.DELETE, 3, None),
        Row(3, "again"),
    ]
    attempt.publish(rows, [])  # type: ignore[arg-type]
    everything = "SELECT id, note FROM orders ORDER BY id"
    assert run(dsn, everything) == [(1, "A"), (3, "again")]
    attempt.publish([Row.of_kind(RowKind.DELETE, 3, None)], [])  # type: ignore[list-item]
    assert run(dsn, everything) == [(1, "A")]


def test_an_older_attempt_cannot_overwrite_newer_rows(postgres: Any, tmp_path: Path) -> None:
    case = upsert_case(postgres, tmp_path)
    old = Attempt(case, tmp_path)
    old.publish(["a"], [])
    new = Attempt(case, tmp_path, "a2")
    with pytest.raises(FencedError, match="took over with attempt a2"):
        old.publish(["b"], [])
    new.publish(["c"], [])
    assert case.shown() == ["a", "c"]


def test_without_a_guarantee_rows_are_appended_with_every_micro_batch(
    postgres: Any, tmp_path: Path
) -> None:
    dsn = lines_table(postgres)
    builder = lines_sink(dsn).set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
    for name in ("a1", "a2"):
        Attempt(Case(builder.build(), list), tmp_path, name).publish(["a"], ["b"])
    assert lines_in(dsn) == ["a", "b", "a", "b"]


def test_a_rejected_upsert_names_the_row(postgres: Any, tmp_path: Path) -> None:
    dsn, builder = orders(postgres)
    run(dsn, "ALTER TABLE orders ADD CHECK (note <> 'bad')")
    attempt = Attempt(case_of(builder.set_columns("id", "note").set_key_columns("id")), tmp_path)
    with pytest.raises(RefusedRowsError, match=r"Failing row contains \(2, null, bad\)"):
        attempt.publish([(1, "good"), (2, "bad")], [])  # type: ignore[list-item]
    attempt.publish([(1, "good")], [])  # type: ignore[list-item]
    assert run(dsn, "SELECT id FROM orders") == [(1,)]
