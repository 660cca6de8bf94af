"""What tasks read is what independent programs compute, for all kinds of state and all backends."""

from __future__ import annotations

import datetime
import random
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In

from penstock.checkpoint.storage.metadata_serializer import encode_metadata
from penstock.common import Types
from penstock.errors import CorruptStateError, DisappearedSnapshotError, StateOptionError
from penstock.snapshots.stored_snapshot import StoredSnapshot
from penstock.spark.state.change_scan import ChangeScan
from penstock.spark.state.keyed_scan import KeyedPartition, KeyedScan
from penstock.spark.state.metadata_source import StateMetadataSource
from penstock.spark.state.options import parse_options
from penstock.spark.state.plan import plan_scan
from penstock.spark.state.scan import KeptSnapshot
from penstock.spark.state.shapes import KeyedShape
from penstock.state.registry.meta_info import LIST_STATE, MAP_STATE
from tests.golden.programs import states
from tests.golden.programs.running import Run
from tests.unit.snapshots.made_snapshots import FORMATS, Made, entries_of, snapshot_of
from tests.unit.snapshots.test_reading import values_of
from tests.unit.spark.state.reads import BOOK, golden, plain, read, rows_of

SEEDS = 6


@pytest.fixture(params=["hashmap", "rocksdb", "memory", "savepoint"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return golden(request.param, tmp_path)


def by_key(rows: list[dict[str, Any]], column: str) -> dict[Any, Any]:
    return {plain(row["key"]): plain(row[column]) for row in rows}


def test_value_states_have_what_the_input_says(path: Path) -> None:
    def found(state: str) -> dict[Any, Any]:
        return by_key(read(path, operatorUid=BOOK, stateVarName=state), "value")

    numbers = {key: values_of(key) for key in range(states.KEYS)}
    assert found("count") == {key: len(mine) for key, mine in numbers.items()}
    assert found("total") == {key: sum(mine) for key, mine in numbers.items()}
    assert found("mean") == {k: {"f0": sum(n), "f1": len(n)} for k, n in numbers.items()}
    assert found("row") == {
        k: {"_kind": None, "number": n[-1], "text": str(n[-1])} for k, n in numbers.items()
    }
    assert found("raw") == {k: bytes(one % 256 for one in n[-3:]) for k, n in numbers.items()}


def test_lists_are_rows_of_elements_or_arrays(path: Path) -> None:
    rows = read(path, operatorUid=BOOK, stateVarName="last")
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for row in rows:
        found[plain(row["key"])][row["list_position"]] = plain(row["list_element"])
    expected = {key: values_of(key)[-3:] for key in range(states.KEYS)}
    assert {key: [one[at] for at in range(len(one))] for key, one in found.items()} == expected
    rows = read(path, operatorUid=BOOK, stateVarName="last", flattenCollectionTypes="FALSE")
    assert {plain(r["key"]): [plain(e) for e in r["list_value"]] for r in rows} == expected


def test_maps_are_rows_of_entries_or_maps(path: Path) -> None:
    expected = {
        key: dict(Counter("even" if n // states.KEYS % 2 == 0 else "odd" for n in values_of(key)))
        for key in range(states.KEYS)
    }
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for row in read(path, operatorUid=BOOK, stateVarName="seen"):
        found[plain(row["key"])][plain(row["user_map_key"])] = plain(row["user_map_value"])
    assert found == expected
    rows = read(path, operatorUid=BOOK, stateVarName="seen", flattenCollectionTypes=False)
    assert {
        plain(row["key"]): {plain(k): plain(v) for k, v in row["map_value"]} for row in rows
    } == expected


def test_what_expires_says_when(path: Path) -> None:
    rows = read(path, operatorUid=BOOK, stateVarName="first")
    assert by_key(rows, "value") == {key: key for key in range(states.KEYS)}
    hour = datetime.timedelta(seconds=states.HOUR)
    assert {row["expires_at"] - row["alive_since"] for row in rows} == {hour}


def test_timers_are_those_that_were_registered_and_have_not_fired(path: Path) -> None:
    rows = read(path, operatorUid=BOOK, readRegisteredTimers=True)
    of_process = [r for r in rows if r["time_domain"] == "processing-time"]
    assert {plain(r["key"]): r["expiration_timestamp_ms"] for r in of_process} == dict.fromkeys(
        range(states.KEYS), states.BELL
    )
    of_event = [
        (plain(r["key"]), r["expiration_timestamp_ms"])
        for r in rows
        if r["time_domain"] == "event-time"
    ]
    watermark = states.time_of(states.CUT - 1) - 1
    due = {n: states.time_of(n) + states.WAIT for n in range(states.CUT)}
    registered = {(states.key_of(n), at) for n, at in due.items() if at > watermark}
    assert set(of_event) >= registered
    assert set(of_event) <= {(states.key_of(n), at) for n, at in due.items()}
    (only,) = {plain(r["key"]) for r in read(path, operatorUid=BOOK, readRegisteredTimers=True,
                                             key=3)}  # fmt: skip
    assert only == 3


def test_windows_have_their_contents_and_their_timers(path: Path) -> None:
    operator = "TumblingEventTimeWindows"
    contents = read(path, operatorUid=operator, stateVarName="window-contents")
    found: dict[tuple[int, int], set[int]] = defaultdict(set)
    for row in contents:
        assert row["window_end"] - row["window_start"] == states.SIZE
        found[plain(row["key"]), row["window_start"]].add(plain(row["list_element"]))
    for (key, start), numbers in found.items():
        assert numbers == {
            n
            for n in range(states.CUT)
            if states.key_of(n) == key and start <= states.time_of(n) < start + states.SIZE
        }
    timers = read(path, operatorUid=operator, readRegisteredTimers=True)
    assert {(plain(row["key"]), row["window_start"]) for row in timers} >= set(found)
    assert all(r["expiration_timestamp_ms"] == r["window_end"] - 1 for r in timers)


def test_operator_state_positions_and_committables(path: Path) -> None:
    rates = read(path, operatorUid="Keyed-Co-Process-Broadcast", stateVarName="rates")
    assert {plain(r["user_map_key"]): plain(r["user_map_value"]) for r in rates} == {
        rule: rule + 1 for rule in range(states.FIRST_RULES)
    }
    (uid,) = {
        row["operator-uid"]
        for row in metadata_rows(path)
        if row["stateStoreName"] == "stamps"
    }  # fmt: skip
    stamps = read(path, operatorUid=uid, stateVarName="stamps")
    assert {row["list_element"]["f0"] for row in stamps} == {
        f"s{row['partition_id']}" for row in stamps
    }
    positions = read(path, readSourcePositions=True)
    assert {row["split"]: row["position"] for row in positions} == {
        "numbers": states.CUT,
        "rules": states.FIRST_RULES,
    }
    assert read(path, readPendingCommittables=True)


def metadata_rows(path: Path) -> list[dict[str, Any]]:
    return rows_of(StateMetadataSource({"path": str(path)}).scan())


def test_metadata_names_operators_and_states(path: Path) -> None:
    rows = metadata_rows(path)
    book = {r["stateStoreName"]: r for r in rows if r["operatorName"] == BOOK}
    assert {"count", "last", "seen", "_timers/event-time"} < book.keys()
    assert book["seen"]["stateType"] == "MAP(STRING, LONG)"
    assert book["first"]["ttlMs"] == states.HOUR * 1000
    assert book["count"]["operator-parallelism"] == book["count"]["numPartitions"] == 2
    assert book["count"]["operator-total-size-in-bytes"] > 0
    assert book["count"]["minBatchId"] <= book["count"]["checkpoint-id"]
    assert len({row["operatorId"] for row in rows}) == len({r["operator-uid"] for r in rows})


def test_pickled_values_are_bytes_unless_they_may_be_loaded(path: Path) -> None:
    rows = read(path, operatorUid=BOOK, stateVarName="kept")
    assert all(isinstance(plain(row["value"]), bytes) for row in rows)
    loaded = read(path, operatorUid=BOOK, stateVarName="kept", allowPickle=True)
    assert by_key(loaded, "value") == {
        key: repr(states.kept_for(values_of(key)[-1], len(values_of(key))))
        for key in range(states.KEYS)
    }


def test_changes_between_two_checkpoints(tmp_path: Path) -> None:
    path = golden("hashmap", tmp_path)
    start, end = sorted(int(p.name.removeprefix("chk-")) for p in path.glob("chk-*"))[-2:]

    def at(checkpoint: int, state: str) -> dict[Any, Any]:
        rows = read(path, operatorUid=BOOK, stateVarName=state, checkpointId=checkpoint)
        return by_key(rows, "value")

    feed: dict[str, Any] = {
        "readChangeFeed": True,
        "changeStartBatchId": start,
        "operatorUid": BOOK,
    }
    for state in ("count", "total", "first"):
        before, after = at(start, state), at(end, state)
        rows = read(path, stateVarName=state, **feed)
        assert {row["batch_id"] for row in rows} <= {end}
        assert {row["change_type"] for row in rows} <= {"update"}
        assert by_key(rows, "value") == {
            key: value for key, value in after.items() if before.get(key) != value
        }
    assert read(path, stateVarName="count", **feed)
    with pytest.raises(StateOptionError, match=r"readChangeFeed.*flattenCollectionTypes"):
        read(path, stateVarName="seen", flattenCollectionTypes=False, **feed)


def test_state_after_rescaling_is_that_of_the_input(tmp_path: Path) -> None:
    settings: dict[str, str] = {}
    for number, parallelism in enumerate((2, 3, 1)):
        # The first run reads some of the input, the others do not read more.
        run = Run(tmp_path / "run", parallelism=parallelism, settings=settings)
        client = states.build(run).execute_async("states")
        if number == 0:
            until(partial(run.lines, "book"))
        savepoint = Path(client.stop_with_savepoint(False, str(tmp_path / "kept")).result())
        client.get_job_execution_result().result()
        settings = {"execution.state-recovery.path": str(savepoint)}
        (numbers,) = read(savepoint, readSourcePositions=True, operatorUid="Source: numbers")
        cut = numbers["position"]
        expected = {k: [n for n in range(cut) if states.key_of(n) == k] for k in range(states.KEYS)}
        rows = read(savepoint, operatorUid=BOOK, stateVarName="total")
        assert by_key(rows, "value") == {key: sum(mine) for key, mine in expected.items() if mine}
        assert len({row["partition_id"] for row in rows}) == min(parallelism, 2)
        rows = read(savepoint, operatorUid=BOOK, stateVarName="last", flattenCollectionTypes=False)
        assert {plain(row["key"]): [plain(e) for e in row["list_value"]] for row in rows} == {
            key: mine[-3:] for key, mine in expected.items() if mine
        }


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


# -- random states -------------------------------------------------------------------------------


def some_states(chance: random.Random) -> dict[str, Made]:
    def of(make: Any) -> dict[str, Any]:
        return {f"k{n}": make() for n in chance.sample(range(90), chance.randint(0, 60))}

    return {
        "total": Made("value state", Types.LONG(), of(lambda: chance.randint(0, 9))),
        "last": Made(
            LIST_STATE,
            Types.LIST(Types.LONG()),
            of(lambda: chance.choices(range(4), k=chance.randint(1, 4))),
        ),
        "seen": Made(
            MAP_STATE,
            Types.MAP(Types.STRING(), Types.LONG()),
            of(
                lambda: {
                    t: chance.choice([None, 1, 2])
                    for t in chance.sample("abcdefgh", chance.randint(1, 8))
                }
            ),
        ),
    }


def made_snapshot(
    made: dict[str, Made], directory: Path, kind: str, parallelism: int
) -> StoredSnapshot:
    key_type = Types.STRING()
    found = snapshot_of(entries_of(made, key_type), directory, kind, key_type, parallelism)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "_metadata").write_bytes(encode_metadata(found.metadata))
    return found


def read_back(name: str, rows: list[dict[str, Any]], *, flatten: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for row in rows:
        key = plain(row["key"])
        if name == "total":
            found[key] = plain(row["value"])
        elif name == "last" and flatten:
            found.setdefault(key, []).append(plain(row["list_element"]))
        elif name == "last":
            found[key] = [plain(one) for one in row["list_value"]]
        elif flatten:
            inside = found.setdefault(key, {})
            assert plain(row["user_map_key"]) not in inside
            inside[plain(row["user_map_key"])] = plain(row["user_map_value"])
        else:
            assert key not in found
            found[key] = {plain(k): plain(v) for k, v in row["map_value"]}
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", FORMATS)
def test_random_states_are_read_exactly_however_they_are_divided(
    tmp_path: Path, kind: str, seed: int
) -> None:
    chance = random.Random(seed)
    made = some_states(chance)
    path = tmp_path / "job" / "chk-1"
    made_snapshot(made, path, kind, chance.randint(1, 4))
    flatten = chance.random() < 0.5
    for name, state in made.items():
        options: dict[str, Any] = {
            "stateVarName": name,
            "flattenCollectionTypes": flatten,
            "minPartitions": chance.randint(1, 9),
        }
        rows = read(path, **options)
        assert read_back(name, rows, flatten=flatten) == state.values
        wanted = chance.sample([f"k{n}" for n in range(90)], chance.randint(0, 12))
        text = str(wanted).replace("'", '"')
        few = read_back(name, read(path, keys=text, **options), flatten=flatten)
        assert few == {key: value for key, value in state.values.items() if key in wanted}
        pushed: list[Filter] = [In(("key", "value"), tuple(wanted))]
        assert read_back(name, read(path, pushed, **options), flatten=flatten) == few


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_changes_are_found_exactly(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    versions = [some_states(chance) for _ in range(3)]
    snapshots = [
        made_snapshot(made, tmp_path / f"job-{n}" / "chk-1", chance.choice(FORMATS), n + 1)
        for n, made in enumerate(versions)
    ]
    operators = tuple(snapshot.metadata.operators[0] for snapshot in snapshots)
    for name in versions[0]:
        state = snapshots[-1].keyed_state(operators[-1], name)
        scan = ChangeScan(
            tuple(snapshots),
            tuple(KeptSnapshot(s.directory, None) for s in snapshots),
            operators,
            KeyedShape(state),
        )
        found = rows_of(scan)
        expected = []
        for old, new in pairwise(versions):
            expected += changed(name, old[name].values, new[name].values)
        assert Counter(map(repr, map(seen_change, found))) == Counter(map(repr, expected))


def seen_change(row: dict[str, Any]) -> tuple[Any, ...]:
    names = ("key", "value", "list_element", "user_map_key", "user_map_value")
    return (row["change_type"], *(plain(row[name]) for name in names if name in row))


def changed(name: str, old: Any, new: Any) -> list[tuple[Any, ...]]:
    """Compute from the values themselves which changes there are."""
    if name == "seen":
        old = {(key, inner): v for key, given in old.items() for inner, v in given.items()}
        new = {(key, inner): v for key, given in new.items() for inner, v in given.items()}
    found: list[tuple[Any, ...]] = []
    for key in {**old, **new}:
        keys = key if isinstance(key, tuple) else (key,)
        if key not in new:
            found.append(("delete", *keys, None))
        elif key not in old or old[key] != new[key]:
            values = new[key] if name == "last" else [new[key]]
            found += [("update", *keys, value) for value in values]
    return found


# -- partitions ----------------------------------------------------------------------------------


def scan_of(path: Path, **options: object) -> KeyedScan:
    given = {"path": str(path)} | {name: str(value) for name, value in options.items()}
    scan = plan_scan(parse_options(given))
    assert isinstance(scan, KeyedScan)
    return scan


def test_only_the_key_groups_of_wanted_keys_are_read(path: Path) -> None:
    scan = scan_of(path, operatorUid=BOOK, stateVarName="count", minPartitions=8)
    assert len(scan.partitions([])) == 8
    for filters in (
        [EqualTo(("key", "value"), 3)],
        [In(("key", "value"), (3, 4)), EqualTo(("key", "value"), 3)],
        [GreaterThan(("value", "value"), 0), EqualTo(("key", "value"), 3)],
    ):
        (partition,) = scan.partitions(filters)
        assert isinstance(partition, KeyedPartition)
        assert partition.keys is not None
        assert len(partition.keys) == 1
    assert scan.partitions([EqualTo(("key", "value"), 2**70)]) == []
    assert scan.partitions([EqualTo(("key", "value"), 1), EqualTo(("key", "value"), 2)]) == []
    unused = [GreaterThan(("key", "value"), 3), EqualTo(("value", "value"), 3)]
    assert len(scan.partitions(unused)) == 8


def test_keys_that_a_filter_and_an_option_leave(path: Path) -> None:
    scan = scan_of(path, operatorUid=BOOK, stateVarName="count", keys="[1, 2]")
    rows = rows_of(scan, [In(("key", "value"), (2, 3))])
    assert [plain(row["key"]) for row in rows] == [2]


def test_a_checkpoint_stays_while_it_is_read(tmp_path: Path) -> None:
    path = golden("rocksdb", tmp_path)
    scan = scan_of(path, operatorUid=BOOK, stateVarName="count")
    (pin,) = (path / "pins").iterdir()  # of the driver
    pin.unlink()
    partition = scan.partitions([])[0]
    assert [one.name for one in (path / "pins").iterdir()] == [pin.name], "planning renews it"
    pin.unlink()
    batches = partition.batches()
    assert isinstance(next(batches), pa.RecordBatch)
    assert [one.name for one in (path / "pins").iterdir()] == [pin.name], "a task renews it"


@pytest.mark.parametrize("name", ["hashmap", "rocksdb", "savepoint"])
def test_a_snapshot_that_is_gone_is_no_damaged_one(tmp_path: Path, name: str) -> None:
    path = golden(name, tmp_path)
    scan = scan_of(path, operatorUid=BOOK, stateVarName="count")
    directory = scan.snapshot.directory
    assert isinstance(directory, Path)
    files = directory / scan.operator.uid if name == "savepoint" else path / "shared"
    kept = tmp_path / "kept"
    shutil.copytree(files, kept)
    shutil.rmtree(files)
    with pytest.raises(CorruptStateError):
        rows_of(scan)
    shutil.copytree(kept, files)
    (directory / "_metadata").unlink()
    with pytest.raises(DisappearedSnapshotError, match="was deleted while it was read"):
        rows_of(scan)
