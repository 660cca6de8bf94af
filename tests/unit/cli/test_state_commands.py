"""`penstock state show`, `diff` and `export`."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.metadata import files_of
from penstock.checkpoint.storage.metadata_serializer import decode_metadata, encode_metadata
from penstock.common import Types
from penstock.ids import JobKey
from penstock.snapshots.stored_snapshot import StoredSnapshot
from penstock.state.registry.meta_info import MAP_STATE
from tests.golden.programs import states
from tests.unit.cli.job_fixtures import end, endless_job, json_of, penstock
from tests.unit.snapshots.made_snapshots import Made, entries_of, snapshot_of
from tests.unit.snapshots.test_differences import VALUE_STATE
from tests.unit.support import eventually

GOLDEN = Path(__file__).parents[2] / "golden" / "jobs" / "v1"
BOOK = "KEYED PROCESS"
FORMATS = ("hashmap", "rocksdb", "memory", "savepoint")


@pytest.fixture(params=FORMATS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A snapshot of the golden program with all kinds of state."""
    return copy(request.param, tmp_path)


def copy(name: str, directory: Path) -> Path:
    shutil.copytree(GOLDEN / name, directory / name)
    (found,) = (directory / name).rglob(
        "savepoint-*/_metadata" if name == "savepoint" else "chk-2/_metadata"
    )
    return found.parent


def made(directory: Path, values: dict[int, int], *, kind: str = "hashmap") -> Path:
    """Write a checkpoint with one value per key and a map state."""
    given = {
        "total": Made(VALUE_STATE, Types.LONG(), values),
        "seen": Made(
            MAP_STATE,
            Types.MAP(Types.STRING(), Types.LONG()),
            {key: {"even": value, "odd": 1} for key, value in values.items()},
        ),
    }
    stored = snapshot_of(entries_of(given, Types.LONG()), directory, kind, Types.LONG(), 2)
    return written(stored)


def written(stored: StoredSnapshot) -> Path:
    assert isinstance(stored.directory, Path)
    stored.directory.mkdir(parents=True, exist_ok=True)
    (stored.directory / "_metadata").write_bytes(encode_metadata(stored.metadata))
    return stored.directory


def numbers_of(key: int) -> list[int]:
    return [n for n in range(states.CUT) if states.key_of(n) == key]


# -- show ---------------------------------------------------------------------------------------


def test_show_counts_what_the_program_has_stored(path: Path) -> None:
    shown = json_of(penstock("state", "show", path, "--json"))
    (book,) = [o for o in shown["snapshot"]["operators"] if o["name"] == BOOK]
    entries = {state["name"]: state["entries"] for state in book["states"]}
    assert entries["count"] == entries["last"] == entries["row"] == states.KEYS
    assert entries["seen"] == 2 * states.KEYS
    assert entries["_timers/processing-time"] == states.KEYS
    by_name = {state["name"]: state for state in book["states"]}
    assert by_name["first"]["ttl_ms"] == 3_600_000
    assert by_name["seen"]["type"] == "MAP(STRING, LONG)"
    assert sum(book["key_groups"]) == sum(state["bytes"] for state in book["states"])
    assert shown["damage"] == []


def test_show_has_a_line_per_state_and_a_histogram(path: Path) -> None:
    result = penstock("state", "show", path)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    (total,) = [line for line in lines if line.split()[:3] == ["total", "reducing", "state"]]
    assert total.split()[3:6] == ["LONG", "-", str(states.KEYS)]
    blocks = next(line for line in lines if line.startswith("  |"))
    assert len(blocks.strip()) == 64 + 2
    assert "key groups 0-127, 2 per column" in result.stdout
    assert "OPERATOR STATE" in result.stdout


def test_show_of_a_job_is_its_newest_checkpoint_or_a_given_one(tmp_path: Path) -> None:
    copy("rocksdb", tmp_path)
    root = tmp_path / "rocksdb" / "checkpoints"
    for where in (("states", "--dir", root), (root / "states",), (root / "states" / "chk-2",)):
        shown = json_of(penstock("state", "show", *where, "--json"))
        assert shown["snapshot"]["checkpoint"] == 2
    shown = json_of(penstock("state", "show", root / "states", "--checkpoint", 2, "--json"))
    assert shown["snapshot"]["checkpoint"] == 2
    result = penstock("state", "show", root / "states", "--checkpoint", 7)
    assert result.exit_code == 1
    assert "retains no checkpoint 7; there are: 1, 2" in result.stderr


def test_a_hot_key_group_is_named(tmp_path: Path) -> None:
    given = {
        "text": Made(VALUE_STATE, Types.STRING(), dict.fromkeys(range(100), "x") | {7: "x" * 9000})
    }
    stored = snapshot_of(
        entries_of(given, Types.LONG()), tmp_path / "j" / "chk-1", "hashmap", Types.LONG()
    )
    result = penstock("state", "show", written(stored))
    assert "times the mean of the" in result.stdout
    assert "the largest is" in result.stdout


def test_show_names_damaged_files_and_fails(tmp_path: Path) -> None:
    copy("hashmap", tmp_path)
    job = tmp_path / "hashmap" / "checkpoints" / states.JOB
    metadata = decode_metadata((job / "chk-2" / "_metadata").read_bytes(), "")
    damaged = [job / "shared" / name for name in files_of(metadata)[:2]]
    for file in damaged:
        file.write_bytes(file.read_bytes()[:-1])
    result = penstock("state", "show", job)
    assert result.exit_code == 1
    assert all(str(file) in result.stdout for file in damaged)
    assert "_timers/event-time" in result.stdout, "the others are shown"


def test_a_path_or_job_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    result = penstock("state", "show", tmp_path / "nothing")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no checkpoint, savepoint or job" in result.stderr
    result = penstock("state", "show", "nothing", "--dir", tmp_path)
    assert result.exit_code == 2
    assert "nothing" in result.stderr


def test_reading_leaves_nothing_in_the_job(tmp_path: Path) -> None:
    copy("rocksdb", tmp_path)
    job = tmp_path / "rocksdb" / "checkpoints" / states.JOB

    def files() -> set[Path]:
        return {file for file in job.rglob("*") if file.is_file()}

    before = files()
    output = tmp_path / "a.csv"
    for command in (
        ("show", job),
        ("diff", job, job / "chk-2"),
        ("export", job, "--operator", BOOK, "--state", "seen", "--output", output),
    ):
        assert penstock("state", *command).exit_code == 0
    assert files() == before


# -- diff ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
def test_diff_counts_by_state_and_shows_keys(tmp_path: Path, kind: str) -> None:
    before = made(tmp_path / "a" / "chk-1", dict.fromkeys(range(10), 1))
    after = made(tmp_path / "b" / "chk-1", {**dict.fromkeys(range(2, 12), 1), 5: 6}, kind=kind)
    found = json_of(penstock("state", "diff", before, after, "--json", "--keys"))
    (operator,) = found["operators"]
    counts = {s["name"]: (s["added"], s["removed"], s["changed"]) for s in operator["states"]}
    assert counts == {"total": (2, 2, 1), "seen": (4, 4, 1)}
    (total,) = [state for state in operator["states"] if state["name"] == "total"]
    by_key = {row["key"]: row for row in total["keys"]}
    assert by_key.keys() == {0, 1, 5, 10, 11}
    assert (by_key[5]["change"], by_key[5]["before"], by_key[5]["after"]) == ("changed", 1, 6)
    assert "after" not in by_key[0]
    text = penstock("state", "diff", before, after, "--keys", "--state", "total").stdout
    assert {line.strip() for line in text.splitlines() if line.startswith("    ")} == {
        "- key 0: 1", "- key 1: 1", "~ key 5: 1 -> 6", "+ key 10: 1", "+ key 11: 1",
    }  # fmt: skip


def test_diff_shows_no_more_keys_than_the_limit_and_says_how_many_there_are(tmp_path: Path) -> None:
    before = made(tmp_path / "a" / "chk-1", {})
    after = made(tmp_path / "b" / "chk-1", dict.fromkeys(range(50), 1))
    result = penstock("state", "diff", before, after, "--keys", "--limit", 3, "--state", "total")
    assert result.stdout.count("    + key") == 3
    assert "… and 47 more (--limit)" in result.stdout


def test_diff_has_an_exit_code_only_if_it_is_asked_for(tmp_path: Path) -> None:
    one = made(tmp_path / "a" / "chk-1", {1: 1})
    same = made(tmp_path / "b" / "chk-1", {1: 1}, kind="savepoint")
    other = made(tmp_path / "c" / "chk-1", {1: 2})
    assert penstock("state", "diff", one, other).exit_code == 0
    assert penstock("state", "diff", one, other, "--exit-code").exit_code == 4
    result = penstock("state", "diff", one, same, "--exit-code")
    assert (result.exit_code, "nothing changed in Count" in result.stdout) == (0, True)


def test_diff_of_unknown_names_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    one = made(tmp_path / "a" / "chk-1", {1: 1})
    other = made(tmp_path / "b" / "chk-1", {1: 2})
    result = penstock("state", "diff", one, other, "--operator", "counting")
    assert (result.exit_code, "count (Count)" in result.stderr) == (1, True)
    result = penstock("state", "diff", one, other, "--state", "totals")
    assert (result.exit_code, "seen, total" in result.stderr) == (1, True)
    # All of its files are shared, so nothing was read that would tell its states.
    result = penstock("state", "diff", one, one, "--state", "totals")
    assert (result.exit_code, "seen, total" in result.stderr) == (1, True)
    assert penstock("state", "diff", one, one, "--state", "total").exit_code == 0


def test_from_and_to_are_checkpoints_of_a_job(tmp_path: Path) -> None:
    one = made(tmp_path / "a" / "chk-1", {1: 1})
    result = penstock("state", "diff", one, one, "--from", 1)
    assert (result.exit_code, "one JOB" in result.stderr) == (2, True)
    shutil.copytree(GOLDEN / "canceled", tmp_path / "canceled")
    (job,) = (tmp_path / "canceled" / "checkpoints").iterdir()
    result = penstock("state", "diff", job)
    assert (result.exit_code, "retains 1 checkpoint" in result.stderr) == (1, True)


def state_at(key: int, count: int) -> dict[str, Any]:
    """Compute what the golden program has stored of a key after that many numbers."""
    numbers = [n for n in range(count) if states.key_of(n) == key]
    even = sum(1 for n in numbers if n // states.KEYS % 2 == 0)
    return {
        "count": len(numbers),
        "last": numbers[-3:],
        "seen": {"even": even, "odd": len(numbers) - even},
        "total": sum(numbers),
        "mean": {"f0": sum(numbers), "f1": len(numbers)},
        "row": {"number": numbers[-1], "text": str(numbers[-1])},
    }


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb", "memory"])
def test_two_checkpoints_of_a_program_differ_by_what_it_did_between_them(
    tmp_path: Path, backend: str
) -> None:
    job = copy(backend, tmp_path).parent
    found = json_of(penstock("state", "diff", job, "--json", "--keys", "--operator", BOOK))
    (operator,) = found["operators"]
    changes = {state["name"]: state for state in operator["states"]}
    earlier = json_of(penstock("state", "show", job, "--checkpoint", 1, "--json"))
    (positions,) = [
        found["positions"]
        for found in json_of(penstock("checkpoint", "inspect", job / "chk-1", "--json"))[
            "operators"
        ]
        if found["name"] == "Source: numbers"
    ]
    (before,) = positions.values()
    assert earlier["snapshot"]["checkpoint"] == 1
    assert 0 < before < states.CUT
    for key in range(states.KEYS):
        old, new = state_at(key, before), state_at(key, states.CUT)
        for name, value in new.items():
            rows = [row for row in changes[name]["keys"] if row["key"] == key]
            if name == "seen":
                assert {r["map_key"]: (r["before"], r["after"]) for r in rows} == {
                    parity: (old[name][parity], value[parity]) for parity in value
                }
            else:
                (row,) = rows
                assert (row["change"], row["before"], row["after"]) == ("changed", old[name], value)
    assert changes["first"]["changed"] == changes["first"]["added"] == 0
    timers = {r["change"]: r for r in changes["_timers/event-time"]["keys"]}
    assert timers.keys() == {"added", "removed"}
    assert timers["removed"]["time"] < timers["added"]["time"]


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a job that has been canceled and retains several checkpoints."""
    root = tmp_path_factory.mktemp("counted")
    client = endless_job(
        root,
        execution__checkpointing__interval="50 ms",
        execution__checkpointing__num_retained="4",
        execution__checkpointing__externalized_checkpoint_retention="RETAIN_ON_CANCELLATION",
    )
    (job,) = root.iterdir()
    journal = Journal(JobDir(root, JobKey(job.name)).storage, JobKey(job.name))
    eventually(lambda: len(journal.state().completed) >= 4)
    end(client)
    return job


def test_the_checkpoints_of_a_job_differ_by_what_its_exports_differ_by(
    counted: Path, tmp_path: Path
) -> None:
    retained = sorted(int(path.name[4:]) for path in counted.glob("chk-*"))
    first, last = retained[0], retained[-1]

    def exported(checkpoint: int, state: str) -> dict[tuple[str, ...], str]:
        file = tmp_path / f"{checkpoint}-{state}.csv"
        where = (counted, "--checkpoint", checkpoint, "--operator", "remember")
        assert (
            penstock("state", "export", *where, "--state", state, "--output", file).exit_code == 0
        )
        return {
            tuple(v for k, v in row.items() if k != "value"): row["value"]
            for row in csv.DictReader(file.open())
        }

    where = ("--from", first, "--to", last)
    found = json_of(penstock("state", "diff", counted, *where, "--json"))
    (operator,) = [o for o in found["operators"] if o["uid"] == "remember"]
    for state in operator["states"]:
        old, new = exported(first, state["name"]), exported(last, state["name"])
        changed = sum(1 for key in old.keys() & new.keys() if old[key] != new[key])
        assert state["changed"] == changed
        assert state["added"] == len(new.keys() - old.keys())
        assert state["removed"] == len(old.keys() - new.keys())
    assert sum(state["changed"] for state in operator["states"]) > 0
    newest = json_of(penstock("state", "diff", counted, "--json"))
    assert [newest[side]["checkpoint"] for side in ("before", "after")] == retained[-2:]
    assert json_of(penstock("state", "diff", counted, "--from", first, "--json")) == found


# -- export -------------------------------------------------------------------------------------


def rows_of(path: Path, state: str, file_format: str, *more: str, operator: str = BOOK) -> Any:
    output = path.parent / f"{state.replace('/', '-')}.{file_format}"
    result = penstock(
        "state", "export", path, "--operator", operator, "--state", state,
        "--output", output, *more,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    if file_format == "parquet":
        return pq.read_table(output).to_pylist()
    with output.open(newline="") as file:
        return list(csv.DictReader(file))


def test_exported_rows_have_what_the_program_has_stored(path: Path) -> None:
    rows = rows_of(path, "last", "parquet")
    assert {row["key"]: row["value"] for row in rows} == {
        key: numbers_of(key)[-3:] for key in range(states.KEYS)
    }
    assert rows[0].keys() == {"key_group", "key", "value"}
    assert [row["key_group"] for row in rows] == sorted(row["key_group"] for row in rows)
    rows = rows_of(path, "row", "csv")
    assert {int(row["key"]): json.loads(row["value"]) for row in rows} == {
        key: {"number": numbers_of(key)[-1], "text": str(numbers_of(key)[-1])}
        for key in range(states.KEYS)
    }


def test_every_state_can_be_exported_in_both_formats(path: Path) -> None:
    shown = json_of(penstock("state", "show", path, "--json"))
    for operator in shown["snapshot"]["operators"]:
        for state in operator["states"]:
            for file_format in ("csv", "parquet"):
                output = path.parent / "all"
                output.unlink(missing_ok=True)
                result = penstock(
                    "state", "export", path, "--operator", operator["uid"], "--format",
                    file_format, "--state", state["name"], "--output", output,
                )  # fmt: skip
                assert result.exit_code == 0, result.output
                rows = (
                    pq.read_table(output).num_rows
                    if file_format == "parquet"
                    else len(list(csv.reader(output.open(newline="")))) - 1
                )
                assert rows == state["entries"]


def test_exported_parquet_of_a_savepoint_is_what_its_own_files_have(tmp_path: Path) -> None:
    path = copy("savepoint", tmp_path)
    shown = json_of(penstock("state", "show", path, "--json"))
    (book,) = [o for o in shown["snapshot"]["operators"] if o["name"] == BOOK]
    own = pq.read_table(path / book["uid"] / "seen").to_pylist()
    assert rows_of(path, "seen", "parquet", "--with-stored-keys") == own


def test_stored_keys_and_bytes_are_base64_in_csv(tmp_path: Path) -> None:
    path = copy("hashmap", tmp_path)
    (row,) = [r for r in rows_of(path, "raw", "csv", "--with-stored-keys") if r["key"] == "1"]
    (same,) = [r for r in rows_of(path, "raw", "parquet", "--with-stored-keys") if r["key"] == 1]
    assert msgspec.json.decode(json.dumps(row["value"]), type=bytes) == same["value"]
    assert msgspec.json.decode(json.dumps(row["key_bytes"]), type=bytes) == same["key_bytes"]


def test_an_export_to_stdout_is_the_same_as_one_to_a_file(tmp_path: Path) -> None:
    path = copy("rocksdb", tmp_path)
    where = ("state", "export", path, "--operator", BOOK, "--state", "seen", "--output")
    for file_format in ("csv", "parquet"):
        file = tmp_path / f"a.{file_format}"
        assert penstock(*where, file).exit_code == 0
        result = penstock(*where, "-", "--format", file_format)
        assert result.exit_code == 0
        if file_format == "csv":
            assert result.stdout_bytes == file.read_bytes()
        else:
            assert pq.read_table(io.BytesIO(result.stdout_bytes)) == pq.read_table(file)


def test_an_export_overwrites_nothing_and_leaves_nothing_when_it_fails(tmp_path: Path) -> None:
    path = copy("hashmap", tmp_path)
    where = ("state", "export", path, "--operator", BOOK, "--state", "seen", "--output")
    file = tmp_path / "a.csv"
    file.write_text("mine")
    result = penstock(*where, file)
    assert (result.exit_code, "is not overwritten" in result.stderr) == (1, True)
    assert file.read_text() == "mine"
    shared = max(
        (path.parent / "shared").rglob("*"), key=lambda p: p.stat().st_size if p.is_file() else 0
    )
    before = set(tmp_path.iterdir())
    shared.write_bytes(shared.read_bytes()[:-1])
    result = penstock(*where, tmp_path / "b.csv")
    assert (result.exit_code, shared.name in result.stderr) == (1, True)
    assert set(tmp_path.iterdir()) == before


def test_an_export_needs_a_known_format_operator_and_state(tmp_path: Path) -> None:
    path = copy("hashmap", tmp_path)

    def export(operator: str, state: str, file: str) -> tuple[int, str]:
        result = penstock(
            "state", "export", path, "--operator", operator, "--state", state,
            "--output", tmp_path / file,
        )  # fmt: skip
        return result.exit_code, result.stderr

    code, text = export(BOOK, "seen", "a.txt")
    assert (code, "give --format" in text) == (2, True)
    code, text = export("book", "seen", "a.csv")
    assert (code, BOOK in text) == (1, True)
    code, text = export(BOOK, "sean", "a.csv")
    assert (code, "count, first, kept" in text) == (1, True)
