from pathlib import Path

import pytest

from penstock.common.contained_paths import counterpart, path_inside
from penstock.errors import UnsafeNameError

ROOT = Path("/data/out")


@pytest.mark.parametrize("name", ["a", "a/b", "a..b", "..a", "/data/out/a", ".hidden/a", "./a"])
def test_a_name_below_the_root_is_resolved(name: str) -> None:
    assert path_inside(ROOT, name).is_relative_to(ROOT)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/../../x",
        "a/..",
        "/etc/passwd",
        "/data/outside",
        "a\0b",
        "/data/out",
    ],
)
def test_a_name_that_leads_out_of_the_root_is_refused(name: str) -> None:
    with pytest.raises(UnsafeNameError):
        path_inside(ROOT, name)


def test_a_root_may_itself_have_dots() -> None:
    assert path_inside(Path("/data/../out"), "a") == Path("/data/../out/a")


def test_a_directory_of_another_job_has_the_same_last_names() -> None:
    own = Path("/jobs/one/connectors/a1/step/transactions")
    for name in ("/jobs/two/connectors/a3/step/transactions", "../jobs/step/transactions"):
        assert counterpart(own, name, levels=2) == Path(name)
    for name in ("/etc", "/etc/transactions", "/step/transactions/..", "/step/transactions\0", ""):
        with pytest.raises(UnsafeNameError):
            counterpart(own, name, levels=2)
