"""Names, dsns and the builder, without any server."""

import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock.common.time import Duration
from penstock.connectors.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.postgres.database import Database, Dsn
from penstock.connectors.postgres.identity import SinkIdentity, attempt_in, sink_in
from penstock.connectors.postgres.names import quoted, quoted_table, quoted_text
from penstock.connectors.postgres.sink import PostgresSink, PostgresSinkBuilder
from penstock.connectors.postgres.table import Column, Table
from penstock.errors import InvalidJobError, PostgresUnreachableError, UnsuitableTableError


def test_a_gid_says_whose_it_is_and_fits() -> None:
    identity = SinkIdentity("orders-1a2b", "birth", "to-postgres", "a12")
    gid = identity.gid(7, 3, "0123abcd")
    assert gid.startswith(identity.prefix)
    assert gid.endswith("-a12-7-3-0123abcd-orders-1a2b-to-postgres")
    assert (attempt_in(gid), sink_in(gid)) == (12, identity.key)
    long = SinkIdentity("j" * 128, "birth", "s" * 100, "a12").gid(7, 3, "0123abcd")
    assert len(long.encode()) == 199
    assert attempt_in(long) == 12


def test_attempts_share_a_key_and_nobody_else_has_it() -> None:
    mine = SinkIdentity("job", "birth", "step", "a1")
    assert mine.key == SinkIdentity("job", "birth", "step", "a2").key
    others = [("other", "birth", "step"), ("job", "other", "step"), ("job", "birth", "other")]
    assert mine.key not in {SinkIdentity(*other, "a1").key for other in others}
    assert SinkIdentity("a", "b-c", "d", "a1").key != SinkIdentity("a-b", "c", "d", "a1").key


def test_a_connection_name_fits_and_tells_its_attempt() -> None:
    name = SinkIdentity("job", "birth", "step", "a12345678").application_name("0123abcd")
    assert len(name) <= 63
    assert attempt_in(name) == 12345678
    assert attempt_in("psql") is None
    assert attempt_in("penstock-x-y-z") is None


def test_names_are_quoted() -> None:
    assert quoted('a"b') == '"a""b"'
    assert quoted_table("Shop.Orders") == '"Shop"."Orders"'
    assert quoted_text("it's") == "'it''s'"


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:geheim@db:5433/shop",
        "host=db port=5433 dbname=shop user=me password=geheim",
    ],
)
def test_a_dsn_is_shown_without_its_password(dsn: str) -> None:
    assert repr(Dsn(dsn)) == "db:5433/shop"
    assert Dsn(dsn).parameters()["password"] == "geheim"


def test_a_broken_dsn_is_refused_without_being_repeated() -> None:
    builder = PostgresSink.builder().set_table("orders").set_dsn("geheim@db")
    with pytest.raises(InvalidJobError, match="dsn is neither") as info:
        builder.build()
    assert "geheim" not in str(info.value)


def test_a_sink_that_is_sent_to_tasks_leaves_the_dsn_behind() -> None:
    sink = PostgresSink.builder().set_dsn("dbname=x password=geheim").set_table("orders").build()
    data = pickle.dumps(sink)
    assert b"geheim" not in data
    assert repr(pickle.loads(data)) == repr(sink) == "PostgresSink(orders)"
    with pytest.raises(ValueError, match="stays where the sink was built"):
        pickle.loads(pickle.dumps(Dsn("dbname=x"))).parameters()


def test_the_builder_refuses_what_does_not_go_together() -> None:
    full = PostgresSink.builder().set_dsn("dbname=x").set_table("orders")
    with pytest.raises(InvalidJobError, match=r"set_dsn\(\) and set_table\(\)"):
        PostgresSink.builder().set_table("orders").build()
    with pytest.raises(InvalidJobError, match="leave out"):
        full.set_key_columns("id").set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).build()
    with pytest.raises(InvalidJobError, match="distinct"):
        PostgresSink.builder().set_dsn("dbname=x").set_table("t").set_columns("a", "a").build()
    with pytest.raises(InvalidJobError, match="'id' is not one of"):
        full.set_columns("a").set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE).build()
    with pytest.raises(InvalidJobError, match="0 or more"):
        PostgresSink.builder().set_dsn("dbname=x").set_table("t").set_max_retries(-1).build()


def wrongly(method: str, *arguments: Any) -> Callable[[PostgresSinkBuilder], object]:
    return lambda builder: getattr(builder, method)(*arguments)


@pytest.mark.parametrize(
    ("give", "told"),
    [
        (wrongly("set_dsn", 5), "set_dsn() needs a text such as 'host=db dbname=shop'; got an ob"),
        (wrongly("set_table", 5), "set_table() needs a text; got 5"),
        (wrongly("set_table", ""), "set_table() needs a text; got ''"),
        (wrongly("set_columns", ["a", "b"]), "in set_columns('id', 'name'); got ['a', 'b']"),
        (wrongly("set_columns"), "set_columns() needs distinct names"),
        (wrongly("set_key_columns", ["id"]), "set_key_columns() needs distinct names"),
        (wrongly("set_key_columns"), "got nothing"),
        (wrongly("set_json_columns", 5), "set_json_columns() needs distinct names"),
        (
            wrongly("set_delivery_guarantee", "EXACTLY_ONCE"),
            "needs a DeliveryGuarantee, such as DeliveryGuarantee.AT_LEAST_ONCE; got 'EXACTLY_ONC",
        ),
        (wrongly("set_two_phase", "no"), "set_two_phase() needs True or False; got 'no'"),
        (wrongly("set_max_retries", "3"), "needs a whole number, 0 or more; got '3'"),
        (wrongly("set_max_retries", 2.5), "needs a whole number, 0 or more; got 2.5"),
        (wrongly("set_max_retries", True), "needs a whole number, 0 or more; got True"),
        (wrongly("set_answer_timeout", 5), "such as Duration.of_minutes(5); got 5"),
        (wrongly("set_answer_timeout", Duration.of_seconds(0)), "needs a Duration above 0"),
        (wrongly("set_schema_of_books", None), "set_schema_of_books() needs a text; got None"),
    ],
)
def test_the_builder_refuses_what_is_of_the_wrong_kind(
    give: Callable[[PostgresSinkBuilder], object], told: str
) -> None:
    with pytest.raises(InvalidJobError, match=re.escape(told)):
        give(PostgresSink.builder())


def table() -> Table:
    columns = (
        Column("id", "integer", required=True, nullable=False),
        Column("doc", "jsonb", required=False, nullable=True),
    )
    return Table("orders", '"public"."orders"', columns, (frozenset({"id"}),))


def test_rows_that_fit_are_given_their_columns() -> None:
    assert table().check_rows(None, 2, ()) == ("id", "doc")
    assert table().check_rows(None, 1, (0,)) == ("id",)
    assert table().check_rows(("doc", "id"), 2, (1,)) == ("doc", "id")
    with pytest.raises(UnsuitableTableError, match="set_json_columns"):
        table().check_rows(("doc", "id"), 2, (0,))


def test_an_absent_server_is_asked_as_often_as_told() -> None:
    calls: list[int] = []
    identity = SinkIdentity("job", "birth", "step", "a1")
    database = Database(Dsn("host=127.0.0.1 port=1 dbname=x"), identity, 2, patience=120)

    def connect(number: int) -> None:
        calls.append(number)
        database.connect("test")

    with pytest.raises(PostgresUnreachableError, match=r"127\.0\.0\.1:1/x"):
        database.patiently("connecting", connect)
    assert calls == [0, 1, 2]
    database.close()
    with pytest.raises(PostgresUnreachableError):
        database.patiently("connecting", connect)
    assert calls == [0, 1, 2, 0]
