"""A driver that sweeps after another one took over removes none of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.connectors.collect_sink import Deliveries, decode_delivery
from penstock.connectors.staging.staging_directory import StagingDirectory


def area(base: Path, attempt: str) -> StagingDirectory:
    return StagingDirectory.hidden_in(base, "job", "step", attempt)


def stage(base: Path, attempt: str) -> Path:
    piece = area(base, attempt).path("b1-0.piece")
    piece.parent.mkdir(parents=True, exist_ok=True)
    piece.write_bytes(b"x")
    return piece


def test_staged_pieces_of_later_attempts_stay(tmp_path: Path) -> None:
    dead, mine, kept, later, much_later = (
        stage(tmp_path, f"a{n}") for n in ("1", "9", "2", "10", "100")
    )
    area(tmp_path, "a9").sweep([kept])
    assert [p.exists() for p in (dead, mine, kept, later, much_later)] == [
        False,
        False,
        True,
        True,
        True,
    ]
    area(tmp_path, "a100").sweep([])
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_say_which_attempt_it_is_of_stays(tmp_path: Path) -> None:
    piece = stage(tmp_path, "notes")
    area(tmp_path, "a9").sweep([])
    assert piece.exists()


LARGE = b"x" * 100_000


def test_deliveries_of_later_attempts_stay(tmp_path: Path) -> None:
    older, mine, later = (Deliveries(tmp_path, f"a{n}") for n in (1, 9, 10))
    old, new = (decode_delivery(d.prepare([LARGE])) for d in (older, later))
    older.record(old)
    later.record(new)
    mine.sweep(set())
    assert later.load(new) == [LARGE]
    assert mine.recorded() == {new.id}
    later.sweep(set())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_record_stays_as_long_as_its_delivery_may_be_committed_again(
    tmp_path: Path, is_kept: bool
) -> None:
    older, mine = Deliveries(tmp_path, "a1"), Deliveries(tmp_path, "a2")
    first, second = (decode_delivery(older.prepare([b"x"])) for _ in range(2))
    for delivery in (first, second):
        older.record(delivery)
    mine.sweep({first.id} if is_kept else set())
    assert mine.recorded() == ({first.id} if is_kept else set())
