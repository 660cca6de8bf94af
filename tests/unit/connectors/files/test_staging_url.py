"""Whose an unfinished upload is, by the name of its object."""

from penstock.common.storage_url import StorageUrl
from penstock.connectors.files.stored.staging_url import StagingUrl

BASE = StorageUrl("s3", "bucket", ("out",))
OF_A_USER = "01234567-89ab-8cde-8f01-23456789abcd"


def staging(attempt: str, step: str = "files") -> StagingUrl:
    return StagingUrl(BASE, "job", "instance", step, attempt)


def test_the_ids_of_a_user_in_prefix_and_suffix_do_not_hide_whose_an_upload_is() -> None:
    mine = staging("a2")
    for name in ("part-{}-0", f"{OF_A_USER}-{{}}-0", f"part-{{}}-0-{OF_A_USER}.csv"):
        assert mine.began(BASE / name.format(mine.writer_id()))
        assert mine.began(BASE / name.format(staging("a1").writer_id()))
        assert not mine.began(BASE / name.format(staging("a3").writer_id()))
        assert not mine.began(BASE / name.format(staging("a1", "other").writer_id()))
    assert not mine.began(BASE / OF_A_USER)
