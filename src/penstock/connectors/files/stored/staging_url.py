"""The place in a store of one step's staged objects, with a subdirectory per attempt."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from uuid import UUID

from penstock.common.config.locations import parse_location
from penstock.common.storage_url import StorageUrl
from penstock.connectors.staging.staging_directory import hidden_name, is_hidden
from penstock.errors import UnsafeNameError
from penstock.ids import attempt_number, is_no_later

_MARK_DIGITS = 12
_ATTEMPT_DIGITS = 6
_LEVELS = 4
"""The hidden directory, the step, the attempt and the file."""
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class StagingUrl:
    """The staged objects of one step of a sink below a URL, as seen by one attempt.

    They are named as `StagingDirectory.shared_path` names files, after the job instance, because
    another job may write to the same URL.
    """

    base: StorageUrl
    job: str
    job_instance: str
    step: str
    attempt: str

    @property
    def root(self) -> StorageUrl:
        """Where this step stages, in all attempts."""
        return self.base / hidden_name(self.job, self.job_instance) / self.step

    def url(self, name: str) -> StorageUrl:
        """Return the place of an object of this attempt."""
        return self.root / self.attempt / name

    def owns(self, name: str) -> bool:
        """Whether this step wrote an object; if not, it belongs to another job's checkpoint."""
        return (place := self._parsed(name)) is not None and place.is_relative_to(self.root)

    def staged(self, name: str) -> StorageUrl:
        """Return the place of a staged object that a snapshot names.

        It may be another job's, and the sink may have had another URL when the snapshot was taken.
        But it is where a sink of this step stages objects, below its URL.

        Raises:
            UnsafeNameError: it is not.
        """
        place = self._parsed(name)
        if place is not None and len(place.parts) >= _LEVELS:
            hidden, step, attempt, _ = place.parts[-_LEVELS:]
            is_staged = is_hidden(PurePosixPath(hidden)) and attempt_number(attempt) is not None
            if is_staged and step == self.step:
                return place
        raise UnsafeNameError(name, f"{hidden_name('*', '')}/{self.step}/a*")

    def final(self, name: str, staged: StorageUrl) -> StorageUrl:
        """Return the place of a final object: below the URL of the sink that staged another one.

        Raises:
            UnsafeNameError: it is not there, or in the hidden directory of a job.
        """
        base = replace(staged, parts=staged.parts[:-_LEVELS])
        place = self._parsed(name)
        if place is None or place == base or not place.is_relative_to(base):
            raise UnsafeNameError(name, str(base))
        if is_hidden(place.relative_to(base)):
            raise UnsafeNameError(name, str(base))
        return place

    def writer_id(self) -> UUID:
        """Return a new id for names of part files, which says whose they are.

        The uploads of all jobs that write to the same URL are listed together.
        """
        number = attempt_number(self.attempt) or 0
        attempt = f"{number:0{_ATTEMPT_DIGITS}x}"[-_ATTEMPT_DIGITS:]
        noise = secrets.token_hex(6)
        text = f"{self._mark()}8{noise[:3]}{secrets.choice('89ab')}{noise[3:6]}{attempt}{noise[6:]}"
        return UUID(text)

    def began(self, upload: StorageUrl) -> bool:
        """Whether this step began an upload, in this attempt or an older one."""
        if upload.is_relative_to(self.root):
            names = upload.relative_to(self.root).parts
            return len(names) > 1 and is_no_later(names[0], self.attempt)
        # The user's prefix and suffix may have one, too.
        return any(self._is_mine(found.replace("-", "")) for found in _UUID.findall(upload.name))

    def _is_mine(self, digits: str) -> bool:
        attempt = f"a{int(digits[20 : 20 + _ATTEMPT_DIGITS], 16)}"
        return digits.startswith(self._mark()) and is_no_later(attempt, self.attempt)

    def _mark(self) -> str:
        own = f"{hidden_name(self.job, self.job_instance)}/{self.step}".encode()
        return hashlib.sha256(own).hexdigest()[:_MARK_DIGITS]

    def _parsed(self, name: str) -> StorageUrl | None:
        try:
            place = parse_location(name, self.base.options)
        except ValueError:
            return None
        # A listing of a directory is a path, too, but not of this kind.
        return place if isinstance(place, StorageUrl) and "\0" not in name else None
