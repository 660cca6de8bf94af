from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.checkpoint.storage.job_dir import (
    JobDir,
    JobFacts,
    PlannedStep,
    find_job,
    job_key,
    jobs_in,
)
from penstock.common.storage_url import names_below
from penstock.errors import AmbiguousJobError, InvalidJobError, UnknownJobError
from penstock.ids import JobKey
from tests.local_paths import local


def job(root: Path, key: str, name: str | None = None) -> JobDir:
    place = JobDir(root, JobKey(key))
    local(place.journal).mkdir(parents=True)
    if name is not None:
        place.write_facts(JobFacts(name, 1.0))
    return place


def test_paths_are_those_of_the_layout() -> None:
    place = JobDir(Path("/c"), JobKey("count-1"))
    paths = [
        place.journal, place.checkpoint_dir(7), place.metadata(7), place.shared, place.control,
        place.driver, place.job,
    ]  # fmt: skip
    assert [names_below(Path("/c/count-1"), path) for path in paths] == [
        "journal", "chk-7", "chk-7/_metadata", "shared", "control",
        "driver.json", "job.json",
    ]  # fmt: skip


def test_a_configured_id_is_used_unchanged() -> None:
    assert job_key("Orders_v2.1-eu", "whatever") == "Orders_v2.1-eu"


@pytest.mark.parametrize("given", ["", ".", "..", "a/b", "-a", ".a", "a b", "ä", "x" * 129, "a\n"])
def test_an_id_that_cannot_name_a_directory_is_refused(given: str) -> None:
    with pytest.raises(InvalidJobError, match="cannot name a directory"):
        job_key(given, "count")


def test_an_id_made_of_a_name_can_be_read_and_stays_the_same() -> None:
    assert job_key(None, "Word Count (EU)") == "word-count-eu-d017e2cc"
    assert job_key(None, "") == job_key(None, "")
    assert job_key(None, "数").startswith("job-")


def test_names_that_read_alike_make_different_ids() -> None:
    names = ["count", "Count", "count ", "count!", "x" * 100, "x" * 101]
    assert len({job_key(None, name) for name in names}) == len(names)


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_an_id_made_from_any_name_is_a_valid_configured_id(name: str) -> None:
    assert job_key(job_key(None, name), "") == job_key(None, name)


def test_facts_are_read_back_and_replaced(tmp_path: Path) -> None:
    place = JobDir(tmp_path, JobKey("count"))
    assert place.read_facts() is None
    facts = JobFacts("count", 1.5, "/p.py", ["--a", "b"], [PlannedStep("u", "map", 3)])
    place.write_facts(JobFacts("older", 1.0))
    place.write_facts(facts)
    assert place.read_facts() == facts
    local(place.job).write_bytes(b"{")
    assert place.read_facts() is None


def test_checkpoints_on_disk_are_those_with_a_directory(tmp_path: Path) -> None:
    place = JobDir(tmp_path, JobKey("count"))
    assert place.checkpoints_on_disk() == []
    for name in ("chk-10", "chk-9", "chk-x", "chk-01", "chk-1.old", "shared"):
        local(place.path / name).mkdir(parents=True)
    assert place.checkpoints_on_disk() == [9, 10]


def test_jobs_are_the_directories_with_a_journal_or_a_description(tmp_path: Path) -> None:
    assert jobs_in(tmp_path / "nowhere") == []
    first, second = job(tmp_path, "b"), job(tmp_path, "a", "count")
    (tmp_path / "other" / "x").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"")
    assert jobs_in(tmp_path) == [second, first]


def test_a_job_is_found_by_its_id_before_its_name(tmp_path: Path) -> None:
    first = job(tmp_path, "one", "two")
    second = job(tmp_path, "two", "one more")
    assert find_job(tmp_path, "one") == first
    assert find_job(tmp_path, "two") == second
    assert find_job(tmp_path, "one more") == second


def test_an_unknown_job_is_answered_with_those_that_are_there(tmp_path: Path) -> None:
    job(tmp_path, "count-1", "count")
    job(tmp_path, "nameless")
    with pytest.raises(UnknownJobError, match=r"has count-1 \('count'\), nameless; give one"):
        find_job(tmp_path, "sum")
    with pytest.raises(UnknownJobError, match="has none at all"):
        find_job(tmp_path / "nowhere", "sum")


def test_a_name_of_several_jobs_is_answered_with_their_ids(tmp_path: Path) -> None:
    job(tmp_path, "eu", "count")
    job(tmp_path, "us", "count")
    with pytest.raises(AmbiguousJobError, match="give the id of one: eu, us"):
        find_job(tmp_path, "count")


def test_a_checkpoint_is_named_in_the_journal_by_its_own_name_however_it_is_spelled(
    tmp_path: Path,
) -> None:
    job = JobDir(tmp_path / "jobs", JobKey("count"))
    local(job.checkpoint_dir(7)).mkdir(parents=True)
    (tmp_path / "link").symlink_to(local(job.path))
    for path in (
        job.checkpoint_dir(7),
        tmp_path / "link" / "chk-7",
        job.path / "x" / ".." / "chk-7",
    ):
        assert job.to_journal_path(str(path)) == "chk-7"
    assert job.to_journal_path("/elsewhere/chk-7") == "/elsewhere/chk-7"
