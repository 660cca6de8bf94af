"""Names, dsns and the builder, without any server."""

import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock.common.time import Duration
from penstock.connectors.contracts.sink import DeliveryGuarantee
from penstock.connectors.postgres.database import Database, Dsn
from penstock.connectors.postgres.names import (
    SinkIdentity,
    attempt_number_of,
    quoted,
    quoted_table,
    quoted_text,
    sink_key_of,
)
from penstock.connectors.postgres.sink import PostgresSink, PostgresSinkBuilder
from penstock.connectors.postgres.table import Column, Table
from penstock.errors import InvalidJobError, PostgresUnreachableError, UnsuitableTableError


def test_a_gid_identifies_its_sink_and_is_short_enough() -> None:
    identity = SinkIdentity("orders-1a2b", "birth", "to-postgres", "a12")
    gid = identity.gid(7, 3, "0123abcd")
    assert gid.startswith(identity.prefix)
    assert gid.endswith("-a12-7-3-0123abcd-orders-1a2b-to-postgres")
    assert (attempt_number_of(gid), sink_key_of(gid)) == (12, identity.key)
    long = SinkIdentity("j" * 128, "birth", "s" * 100, "a12").gid(7, 3, "0123abcd")
    assert len(long.encode()) == 199
    assert attempt_number_of(long) == 12


def test_attempts_share_a_key_that_is_unique_to_the_sink() -> None:
    mine = SinkIdentity("job", "birth", "step", "a1")
    assert mine.key == SinkIdentity("job", "birth", "step", "a2").key
    others = [("other", "birth", "step"), ("job", "other", "step"), ("job", "birth", "other")]
    assert mine.key not in {SinkIdentity(*other, "a1").key for other in others}
    assert SinkIdentity("a", "b-c", "d", "a1").key != SinkIdentity("a-b", "c", "d", "a1").key


def test_a_connection_name_identifies_its_attempt_and_is_short_enough() -> None:
    name = SinkIdentity("job", "birth", "step", "a12345678").application_name("0123abcd")
    assert len(name) <= 63
    assert attempt_number_of(name) == 12345678
    assert attempt_number_of("psql") is None
    assert attempt_number_of("penstock-x-y-z") is None


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


def test_an_invalid_dsn_is_rejected_without_being_repeated() -> None:
    builder = PostgresSink.builder().set_table("orders").set_dsn("geheim@db")
    with pytest.raises(InvalidJobError, match="dsn must look like") as info:
        builder.build()
    assert "geheim" not in str(info.value)


def test_a_pickled_sink_does_not_contain_the_dsn() -> None:
    sink = PostgresSink.builder().set_dsn("dbname=x password=geheim").set_table("orders").build()
    data = pickle.dumps(sink)
    assert b"geheim" not in data
    assert repr(pickle.loads(data)) == repr(sink) == "PostgresSink(orders)"
    with pytest.raises(ValueError, match="not in its copies"):
        pickle.loads(pickle.dumps(Dsn("dbname=x"))).parameters()


def test_the_builder_rejects_contradictory_settings() -> None:
    full = PostgresSink.builder().set_dsn("dbname=x").set_table("orders")
    with pytest.raises(InvalidJobError, match=r"set_dsn\(\) and set_table\(\)"):
        PostgresSink.builder().set_table("orders").build()
    with pytest.raises(InvalidJobError, match="remove set_delivery"):
        full.set_key_columns("id").set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).build()
    with pytest.raises(InvalidJobError, match="distinct"):
        PostgresSink.builder().set_dsn("dbname=x").set_table("t").set_columns("a", "a").build()
    with pytest.raises(InvalidJobError, match="'id' is not one of"):
        full.set_columns("a").set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE).build()
    with pytest.raises(InvalidJobError, match="0 or more"):
        PostgresSink.builder().set_dsn("dbname=x").set_table("t").set_max_retries(-1).build()


def calling(method: str, *arguments: Any) -> Callable[[PostgresSinkBuilder], object]:
    return lambda builder: getattr(builder, method)(*arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (calling("set_dsn", 5), "set_dsn() needs a string such as 'host=db dbname=shop'; got an"),
        (calling("set_table", 5), "set_table() needs a non-empty string; got 5"),
        (calling("set_table", ""), "set_table() needs a non-empty string; got ''"),
        (calling("set_columns", ["a", "b"]), "in set_columns('id', 'name'); got ['a', 'b']"),
        (calling("set_columns"), "set_columns() needs distinct names"),
        (calling("set_key_columns", ["id"]), "set_key_columns() needs distinct names"),
        (calling("set_key_columns"), "got nothing"),
        (calling("set_json_columns", 5), "set_json_columns() needs distinct names"),
        (
            calling("set_delivery_guarantee", "EXACTLY_ONCE"),
            "needs a DeliveryGuarantee, such as DeliveryGuarantee.AT_LEAST_ONCE; got 'EXACTLY_ONC",
        ),
        (calling("set_two_phase", "no"), "set_two_phase() needs True or False; got 'no'"),
        (calling("set_max_retries", "3"), "needs a whole number, 0 or more; got '3'"),
        (calling("set_max_retries", 2.5), "needs a whole number, 0 or more; got 2.5"),
        (calling("set_max_retries", True), "needs a whole number, 0 or more; got True"),
        (calling("set_response_timeout", 5), "such as Duration.of_minutes(5); got 5"),
        (calling("set_response_timeout", Duration.of_seconds(0)), "needs a Duration above 0"),
        (
            calling("set_ledger_schema", None),
            "set_ledger_schema() needs a non-empty string; got None",
        ),
    ],
)
def test_the_builder_rejects_arguments_of_the_wrong_type(
    call: Callable[[PostgresSinkBuilder], object], message: str
) -> None:
    with pytest.raises(InvalidJobError, match=re.escape(message)):
        call(PostgresSink.builder())


def table() -> Table:
    columns = (
        Column("id", "integer", required=True, nullable=False),
        Column("doc", "jsonb", required=False, nullable=True),
    )
    return Table("orders", '"public"."orders"', columns, (frozenset({"id"}),))


def test_matching_rows_are_assigned_their_columns() -> None:
    assert table().check_rows(None, 2, ()) == ("id", "doc")
    assert table().check_rows(None, 1, (0,)) == ("id",)
    assert table().check_rows(("doc", "id"), 2, (1,)) == ("doc", "id")
    with pytest.raises(UnsuitableTableError, match="set_json_columns"):
        table().check_rows(("doc", "id"), 2, (0,))


def test_an_unreachable_server_is_retried_as_configured() -> None:
    calls: list[int] = []
    identity = SinkIdentity("job", "birth", "step", "a1")
    database = Database(Dsn("host=127.0.0.1 port=1 dbname=x"), identity, 2, response_timeout=120)

    def connect(number: int) -> None:
        calls.append(number)
        database.connect("test")

    with pytest.raises(PostgresUnreachableError, match=r"127\.0\.0\.1:1/x"):
        database.with_retries("connecting", connect)
    assert calls == [0, 1, 2]
    database.close()
    with pytest.raises(PostgresUnreachableError):
        database.with_retries("connecting", connect)
    assert calls == [0, 1, 2, 0]
