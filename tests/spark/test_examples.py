"""Every example runs, and prints what it should."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import plans_of
from penstock.testing.servers.kafka_files import KafkaFiles
from penstock.testing.servers.s3_server import s3_binary
from tests.conftest import made_or_skipped
from tests.spark import run_examples
from tests.spark.run_examples import EXAMPLES, KAFKA_ORDERS, TABLE_ORDERS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

LONGEST = {"kafka_orders": 115, "start_from_history": 95, "two_hosts": 140}
"""Lines of an example that has two ends to describe; others have 90."""

Results = dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    directory = tmp_path_factory.mktemp("examples")
    path = directory / "results.json"
    with (directory / "log").open("w") as log:
        subprocess.run(
            [sys.executable, run_examples.__file__, str(path)],
            cwd=directory,
            stdout=log,
            stderr=log,
            check=False,
        )
    found: Results = json.loads(path.read_text()) if path.exists() else {}
    found["log"] = {"output": (directory / "log").read_text()[-4000:], "error": None}
    return found


def printed(results: Results, name: str) -> list[str]:
    """Return the lines a run printed, without the number of the subtask in front."""
    assert name in results, results["log"]["output"]
    error = results[name]["error"]
    assert error is None, f"{error}; it printed {results[name]['output'][-4000:]}"
    return [re.sub(r"^\d+> ", "", line) for line in results[name]["output"].splitlines()]


def test_the_first_program_counts_words(results: Results) -> None:
    lines = printed(results, "first_program")
    assert sorted(lines) == [
        "('be', 1)",
        "('be', 2)",
        "('not', 1)",
        "('or', 1)",
        "('to', 1)",
        "('to', 2)",
    ]


def test_word_count_counts_a_file(results: Results) -> None:
    assert sorted(printed(results, "word_count")) == [
        "(be,1)",
        "(be,2)",
        "(not,1)",
        "(or,1)",
        "(to,1)",
        "(to,2)",
    ]


def test_word_count_counts_a_socket_until_it_closes(results: Results) -> None:
    lines = printed(results, "word_count from a socket")
    assert [line for line in lines if line.startswith("(a,")] == ["(a,1)", "(a,2)", "(a,3)"]
    assert sorted(lines)[-1] == "(without,1)"
    assert len(lines) == 10


def test_keyed_state_shows_all_states(results: Results) -> None:
    lines = printed(results, "keyed_state")
    assert len(lines) == 5
    assert lines[3] == (
        "ann: tea after cake, prices [4, 7, 4], items {'cake': 1, 'tea': 2}, dearest 7, "
        "mean 5.0, checksum b'\\xfc\\xb6\\xec\\x10'"
    )
    assert lines[4].startswith("bob: tea after milk, prices [1, 5], ")


def test_window_aggregates_and_late_sales_are_all_sales(results: Results) -> None:
    program = runpy.run_path(str(EXAMPLES / "window_aggregates.py"))
    total = sum(program["sale"](number)[2] for number in range(program["SALES"]))
    lines = results["window_aggregates"]["output"].splitlines()
    assert results["window_aggregates"]["error"] is None, results["window_aggregates"]["error"]
    for size in ("minute", "hour", "day"):
        found = [line.partition("> ") for line in lines if re.match(rf"{size}(:\d+)?> ", line)]
        last = {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for _, _, line in found}
        late = [line for line in lines if re.match(rf"too late for its {size}(:\d+)?> ", line)]
        missed = sum(int(line.rstrip(")").rpartition(",")[2]) for line in late)
        assert sum(last.values()) + missed == total


def test_fraud_is_a_small_charge_followed_by_a_large_one_within_a_minute(
    results: Results,
) -> None:
    program = runpy.run_path(str(EXAMPLES / "fraud_patterns.py"))
    charges = [program["charge"](number) for number in range(program["CHARGES"])]
    assert charges != sorted(charges, key=lambda charge: charge[1]), "the stream is out of order"

    def is_fraud(first: tuple[int, float], second: tuple[int, float], within: int = 60) -> bool:
        return first[1] < 1 and second[1] > 500 and second[0] - first[0] <= within * 1000

    alerts, too_late, interrupted = [], 0, 0
    for account in range(program["ACCOUNTS"]):
        mine = sorted((at, amount) for who, at, amount in charges if who == account)
        for before, now in pairwise(mine):
            if is_fraud(before, now):
                alerts.append(f"account {account}: {now[1]:.2f} at {now[0] // 1000} s")
            too_late += not is_fraud(before, now) and is_fraud(before, now, within=3600)
        for first, middle, last in zip(mine, mine[1:], mine[2:], strict=False):
            interrupted += is_fraud(first, last) and 1 <= middle[1] <= 500
    assert min(len(alerts), too_late, interrupted) > 5
    lines = printed(results, "fraud_patterns")
    assert sorted(re.sub(r"^alert(:\d+)?> ", "", line) for line in lines) == sorted(alerts)


def test_online_learning_approaches_the_truth_and_its_loss_falls(results: Results) -> None:
    program = runpy.run_path(str(EXAMPLES / "online_learning.py"))
    readings = [program["reading"](number) for number in range(program["EVENTS"])]
    lines = printed(results, "online_learning")
    for sensor, truth in program["TRUTH"].items():
        model, losses, due = [0.0, 0.0, 0.0], [], []
        mine = [(known, shown) for who, known, shown in readings if who == sensor]
        for number, ((x, y, one), shown) in enumerate(mine, start=1):
            error = shown - (model[0] * x + model[1] * y + model[2] * one)
            losses.append(error**2)
            if number % 100 == 0:
                weights = ", ".join(f"{weight:.3f}" for weight in model)
                due.append(f"{sensor}: mean loss {sum(losses[-100:]) / 100:.4f}, model [{weights}]")
            model = [w + 0.05 * error * v for w, v in zip(model, (x, y, one), strict=True)]
        hundreds = [line for line in lines if line.startswith(sensor)]
        assert hundreds == due
        first, *_, (loss, *learned) = [
            [float(number) for number in re.findall(r"-?\d+\.\d+", line)] for line in hundreds
        ]
        assert loss < first[0] / 20
        assert learned == pytest.approx(truth, abs=0.1)


def test_state_that_is_inspected_is_that_of_the_visits_so_far(results: Results) -> None:
    program = runpy.run_path(str(EXAMPLES / "inspect_state.py"))
    rows = [re.findall(r"[^\s|]+", line) for line in printed(results, "inspect_state")]
    numbers = [[int(cell) for cell in row] for row in rows if row and all(map(str.isdigit, row))]
    (customers, count), *found = numbers
    visits = Counter(program["visit"](number)[0] for number in range(count))
    assert customers == len(visits)
    assert [(customer, visits[customer]) for customer, _ in found[:3]] == [
        (customer, number) for customer, number in found[:3]
    ]
    assert [number for _, number in found[:3]] == [n for _, n in visits.most_common(3)]
    assert sum(keys for _, keys in found[3:5]) == customers


def test_history_is_the_last_visits_up_to_the_time_of_the_query(results: Results) -> None:
    program = runpy.run_path(str(EXAMPLES / "history.py"))
    visits = [program["visit"](number) for number in range(program["VISITS"])]
    due = []
    for customer, at, name in map(program["query"], range(program["QUERIES"])):
        before = [visit for who, when, visit in visits if who == customer and when <= at]
        due.append(f"{name} of {customer}: {' '.join(before[-3:])}")
    assert sorted(printed(results, "history")) == sorted(due)


def test_repaired_state_is_what_the_job_continues_with(results: Results) -> None:
    program = runpy.run_path(str(EXAMPLES / "repair_state.py"))
    paid: Counter[str] = Counter()
    for who, amount in program["PAYMENTS"]:
        paid[who] += amount
    for who, amount in program["REFUNDS"]:
        paid[who] -= amount
    lines = printed(results, "repair_state")
    assert f"corrected: {dict(sorted(paid.items()))}" in lines
    assert lines[0] != lines[2].replace("corrected", "stored"), "there was nothing to repair"
    due = [f"{who} has paid {paid[who] + amount}" for who, amount in program["LATER"]]
    assert sorted(lines[3:]) == sorted(due)


def lines_after_history() -> list[str]:
    """Compute what each order says that is not in the table."""
    program = runpy.run_path(str(EXAMPLES / "start_from_history.py"))
    totals: Counter[str] = Counter()
    items: Counter[tuple[str, str]] = Counter()
    lines = []
    for number in range(program["HISTORY"] + program["NEW"]):
        who, item, amount = program["order"](number).values()
        totals[who] += amount
        items[who, item] += 1
        lines.append(f"{who} {item} {items[who, item]} {totals[who]}")
    return lines[program["HISTORY"] :]


def test_a_job_starts_from_history(results: Results) -> None:
    found = printed(results, "start_from_history")
    assert sorted(found) == sorted(lines_after_history())


@pytest.mark.kafka
def test_a_job_starts_from_history_and_continues_from_kafka(results: Results) -> None:
    made_or_skipped(KafkaFiles.in_cache().required)
    lines = printed(results, "start_from_history with Kafka")
    program = runpy.run_path(str(EXAMPLES / "start_from_history.py"))
    assert len(lines) == program["NEW"]

    def last_of(found: list[str]) -> dict[str, int]:
        # The orders of a customer are in both partitions, which are read in any order.
        totals: dict[str, int] = {}
        for line in found:
            who, *_, total = line.split()
            totals[who] = max(totals.get(who, 0), int(total))
        return totals

    assert last_of(lines) == last_of(lines_after_history())


def test_rolling_aggregates_emit_always_or_once(results: Results) -> None:
    lines = printed(results, "rolling_aggregates")
    middle = lines.index("-- BATCH")
    streaming = [line for line in lines[1:middle] if line.startswith("sum> (oslo")]
    assert streaming == ["sum> (oslo,5,mon)", "sum> (oslo,7,mon)", "sum> (oslo,14,mon)"]
    assert middle == 1 + 3 * 5
    assert sorted(lines[middle + 1 :]) == [
        "max> (oslo,7,mon)",
        "max> (rome,9,mon)",
        "max_by> (oslo,7,wed)",
        "max_by> (rome,9,tue)",
        "sum> (oslo,14,mon)",
        "sum> (rome,12,mon)",
    ]


def test_files_to_files_writes_complete_files(results: Results) -> None:
    assert sum(int(line.split()[1]) for line in printed(results, "files_to_files")) == 2
    assert printed(results, "files written") == [
        "A LONG ENOUGH LINE OF A.TXT",
        "A LONG ENOUGH LINE OF B.TXT",
    ]


def test_json_files_are_read_and_written(results: Results) -> None:
    assert printed(results, "json_files") == []
    assert [json.loads(line) for line in printed(results, "JSON written")] == [
        {"item": "ink", "total": 9.0},
        {"item": "tea", "total": 2.5},
        {"item": "tea", "total": 5.5},
    ]


def test_late_data_has_the_same_late_record_in_every_run(results: Results) -> None:
    assert printed(results, "late_data") == [
        "mean> roof [0, 10): 2 readings, mean 20.5",
        "late> (roof,5,19)",
        "mean> roof [10, 20): 2 readings, mean 22.5",
        "mean> roof [20, 30): 1 readings, mean 25.0",
    ]


def test_the_notebook_uses_its_session_while_a_job_runs(results: Results) -> None:
    lines = printed(results, "notebook")
    assert [line for line in lines if not line.isdecimal()] == [
        "{'tea': 7, 'ink': 1}",
        "RUNNING 10",
        "CANCELED",
    ]


def test_generator_is_cancelled_with_its_counters(results: Results) -> None:
    lines = printed(results, "generator")
    assert lines[:2] == ["while it runs: RUNNING", "then: job 'dice' was cancelled"]
    thrown, sixes = map(int, re.findall(r"\d+", lines[2]))
    # 200 a second for 4 seconds is all there can be; how much of it depends on the machine.
    assert 0 < thrown <= 1000
    assert thrown // 6 <= sixes <= thrown // 6 + 1


def test_dataframe_source_processes_a_join(results: Results) -> None:
    assert printed(results, "dataframe_source") == ["[('ink', 9.0), ('tea', 17.5)]"]


def test_alignment_adds_up_both_sources(results: Results) -> None:
    printed(results, "alignment")
    per_key = 12 * (400 + 20) // 10
    assert sorted(printed(results, "sums written")) == sorted(
        f"({key},{n + 1})" for key in range(10) for n in range(per_key)
    )


def test_own_sink_writes_each_order_once_even_if_the_job_fails(results: Results) -> None:
    assert printed(results, "own_sink") == []
    how, *orders = printed(results, "rows written")
    assert how == "staged 0, commits > 1=True, stumbled=True"
    assert sorted(orders) == sorted(f"order {number}" for number in range(600))


def test_spark_writer_sink_writes_each_order_once_even_if_the_job_fails(results: Results) -> None:
    assert printed(results, "spark_writer_sink") == ["150 rows, 150 orders"]


@pytest.mark.kafka
@pytest.mark.postgres
def test_kafka_to_postgres_writes_the_running_total_of_each_customer(results: Results) -> None:
    made_or_skipped(KafkaFiles.in_cache().required)
    assert printed(results, "kafka_to_postgres") == []
    each = range(1, TABLE_ORDERS // 2 + 1)
    expected = [str((customer, n, 10 * n)) for customer in ("ann", "bob") for n in each]
    assert printed(results, "table written") == expected


def test_demo_is_exactly_once_with_two_killed_drivers(results: Results) -> None:
    lines = printed(results, "demo")
    assert "events in 8,000, results out 8,000, lost 0, duplicated 0, wrong 0" in lines
    assert sum("kill -9 " in line and line.endswith(", the driver") for line in lines) == 2
    assert sum("supervisor: driver died (signal 9)" in line for line in lines) == 2
    assert sum("the driver is back (attempt a" in line for line in lines) == 2
    assert any(re.search(r"checkpoint 1 +\d+\.\d\d s, +\d+\.\d KiB new", line) for line in lines)


def test_the_demo_on_hosts_that_share_only_s3_is_exactly_once_although_everything_is_killed(
    results: Results,
) -> None:
    made_or_skipped(s3_binary)
    lines = printed(results, "s3_demo")
    assert "events in 8,000, results out 8,000, lost 0, duplicated 0, wrong 0" in lines
    killed = [line.rpartition(", ")[2] for line in lines if re.search(r"kill -9 \d+, ", line)]
    host = "everything on host 127.0.0.2"
    assert sorted(killed) == [host, *["the S3 server", "the driver", "the driver"]]
    assert sum(" resumes from checkpoint " in line for line in lines) >= 3


def test_unaligned_checkpoints_are_ten_times_shorter_and_in_flight_data_is_replayed(
    results: Results,
) -> None:
    lines = printed(results, "barriers")
    (shorter,) = [line for line in lines if line.startswith("under the full backlog ")]
    assert int(re.findall(r": (\d+) times shorter", shorter)[0]) >= 10
    (replayed,) = [line for line in lines if line.endswith("were replayed after the kill")]
    assert int(replayed.split()[0].replace(",", "")) > 1000
    assert "events in 18,100, lines out 18,100, lost 0, duplicated 0, wrong 0" in lines
    assert sum("kill -9 " in line and line.endswith(", the driver") for line in lines) == 1
    assert sum("the driver is back (attempt a" in line for line in lines) == 1


@pytest.mark.kafka
@pytest.mark.postgres
def test_kafka_and_postgres_agree_after_each_part_was_killed(results: Results) -> None:
    made_or_skipped(KafkaFiles.in_cache().required)
    lines = printed(results, "kafka_demo")
    all_of_them = f"{KAFKA_ORDERS:,}"
    assert (
        f"orders {all_of_them}, in the topic {all_of_them}, in the table {all_of_them}, "
        "lost 0, duplicated 0, wrong 0"
    ) in lines
    killed = [line.rpartition(", ")[2] for line in lines if "kill -9 " in line]
    assert killed[-4:] == ["the driver", "one of its Python workers", "the broker", "the database"]
    assert sum("supervisor: driver died (signal 9)" in line for line in lines) == 1
    assert "prepared transactions left in the database: 0" in lines


def test_demos_clean_up(results: Results) -> None:
    assert printed(results, "leftovers") == []


def test_the_demo_notices_lost_duplicated_and_wrong_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    verify = runpy.run_path(str(EXAMPLES / "demo.py"))["verify"]
    ordered = ["web-0,c1,east,100", "web-1,c1,east,250", "store-0,c2,west,50"]
    good = ["web-1,c1,east,250,250,1", "store-0,c2,west,50,50,1", "web-0,c1,east,100,350,2"]

    def verdict(results: list[str]) -> tuple[int, int, int]:
        found = verify(ordered, results)
        return found.lost, found.duplicated, found.wrong

    assert verdict(good) == (0, 0, 0)
    assert verdict(good[:2]) == (1, 0, 0)
    assert verdict([*good, "store-0,c2,west,50,100,2"]) == (0, 1, 0)
    assert verdict([good[0], good[1], "web-0,c1,east,100,450,2"]) == (0, 0, 1)
    assert verdict([good[0], good[1], "web-0,c1,east,100,350,3"]) == (0, 0, 1)
    assert verdict([good[0], good[1], "web-0,c1,east,999,350,2"]) == (1, 1, 1)


def test_the_demo_of_barriers_notices_lost_duplicated_and_wrong_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    demo = runpy.run_path(str(EXAMPLES / "barriers.py"))
    for name, value in {"ORDERS": 3, "PRICES": 1, "ITEMS": 1}.items():
        monkeypatch.setattr(demo["priced_orders"], name, value)
    good = [
        "order-2,0,1,None",
        "price-0,0,2,price-0",
        "order-0,0,3,price-0",
        "order-1,0,4,price-0",
    ]

    def verdict(results: list[str]) -> tuple[int, int, int]:
        found = demo["verify"](results)
        return found.lost, found.duplicated, found.wrong

    assert verdict(good) == (0, 0, 0)
    assert verdict(good[:3]) == (1, 0, 0)
    assert verdict(good[1:]) == (1, 0, 3), "what follows a lost one has a wrong number"
    assert verdict([*good, "order-1,0,5,price-0"]) == (0, 1, 0)
    assert verdict([*good[:3], "order-1,0,5,price-0"]) == (0, 0, 1)
    assert verdict([*good[:3], "order-1,0,4,None"]) == (0, 0, 1)


def test_the_kafka_demo_notices_lost_duplicated_wrong_and_late_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    demo = runpy.run_path(str(EXAMPLES / "kafka_demo.py"))
    customers = demo["CUSTOMERS"]
    good = demo["due"](3 * customers)

    def verdict(results: list[Any], in_order: bool = True) -> tuple[int, int, int]:
        found = demo["verify"](good, results, in_order=in_order)
        return found.lost, found.duplicated, found.wrong

    assert verdict(good) == (0, 0, 0)
    assert verdict(good[1:]) == (1, 0, 0)
    assert verdict([*good, good[-1]]) == (0, 1, 0)
    id_, customer, number, total = good[-1]
    assert verdict([*good[:-1], (id_, customer, number, total + 1)]) == (0, 0, 1)
    late = [*good[1:], good[0]]
    assert verdict(late) == (0, 0, 1)
    assert verdict(late, in_order=False) == (0, 0, 0)


def test_no_example_is_left_out_and_all_are_short() -> None:
    runs = Path(run_examples.__file__).read_text()
    for path in EXAMPLES.glob("*.py"):
        is_run_by_a_demo = path.stem in ("orders", "priced_orders", "kafka_orders", "two_hosts")
        is_run = any(f'{way}("{path.stem}"' in runs for way in ("run", "beside"))
        is_run_by_unit_tests = path.stem == "customer_page"
        assert is_run or is_run_by_a_demo or is_run_by_unit_tests
        is_a_demo = path.stem in ("demo", "barriers", "kafka_demo", "s3_demo")
        assert is_a_demo or len(path.read_text().splitlines()) <= LONGEST.get(path.stem, 90)


def test_examples_can_be_explained_without_running() -> None:
    (plan,) = plans_of(EXAMPLES / "word_count.py", ())
    assert [s.name for s in plan.stages] == [
        "Source: lines -> FlatMap",
        "KEYED PROCESS -> Print to Std. Out",
    ]
    assert len(plans_of(EXAMPLES / "generator.py", ("0",))) == 1
