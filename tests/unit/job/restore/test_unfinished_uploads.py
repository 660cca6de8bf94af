"""Which unfinished uploads in a job's directory are left over from dead attempts."""

import pytest

from penstock.job.restore.unfinished_uploads import is_left_over


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("chk-7/in-flight", True),
        ("chk-9/in-flight", False),
        ("chk-7x/in-flight", False),
        ("shared/a9/0/000000000007-a2-b7-t0-s0-a9-0.bundle", True),
        ("shared/count/0/000000000007-a3-b7-t0-s0-a1-0.bundle", False),
        ("shared/count/0/000000000007-a2-b7-t0-s0-a9@1f@000010.sst", True),
        ("shared/count/a1/unknown", False),
        ("connectors/a1/a1/a2/7-0.upload", True),
        ("connectors/a1/a1/a3/7-0.upload", False),
        ("connectors/a1/files/a2-0123456789abcdef", True),
        ("connectors/a1/files/a3-0123456789abcdef", False),
        ("connectors/a1/files/unknown", False),
        ("relay/a1/sinks/x", False),
        ("chk-7", True),
        ("other", False),
    ],
)
def test_an_upload_is_left_over_if_its_name_is_of_no_later_attempt(
    path: str, expected: bool
) -> None:
    assert is_left_over(path, "a2", 8) is expected
