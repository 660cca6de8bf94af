"""Names a place in an object store or in HDFS, as `Path` does for local files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class StorageUrl:
    """A place in a store, without any I/O: a scheme, a bucket or name node, and names.

    The options say how to reach the store. They may hold credentials, so they are no part of the
    text, and only that is ever written down. Two URLs with the same text are equal.
    """

    scheme: str
    authority: str
    """The bucket of an object store; host and port of HDFS's name node, or its name service."""
    parts: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __truediv__(self, names: str | PurePosixPath) -> StorageUrl:
        more = PurePosixPath(names)
        if more.is_absolute() or ".." in more.parts:
            message = f"{str(names)!r} is not a path below {self}"
            raise ValueError(message)
        return replace(self, parts=(*self.parts, *more.parts))

    def __str__(self) -> str:
        return f"{self.scheme}://{'/'.join((self.authority, *self.parts))}"

    @property
    def name(self) -> str:
        """The last name, empty for the root of the store."""
        return self.parts[-1] if self.parts else ""

    @property
    def suffix(self) -> str:
        """The end of the last name, from its last dot on, as that of a `Path`."""
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> StorageUrl:
        """The place above; that of the root is the root."""
        return replace(self, parts=self.parts[:-1])

    @property
    def path(self) -> str:
        """All names, with `/` between them."""
        return "/".join(self.parts)

    def is_relative_to(self, other: Location) -> bool:
        """Whether this is the other place, or below it."""
        return (
            isinstance(other, StorageUrl)
            and (self.scheme, self.authority) == (other.scheme, other.authority)
            and self.parts[: len(other.parts)] == other.parts
        )

    def relative_to(self, other: Location) -> PurePosixPath:
        """Return the names from another place to this one."""
        if not self.is_relative_to(other):
            message = f"{self} is not below {other}"
            raise ValueError(message)
        return PurePosixPath(*self.parts[len(other.parts) :])

    def with_options(self, options: Mapping[str, str]) -> StorageUrl:
        """Return the same place, reached with other options."""
        return replace(self, options=dict(options))


Location = Path | StorageUrl
"""Where files are: a directory on this machine, which others may mount, or a place in a store."""


def names_below(base: Location, place: Location) -> str | None:
    """Return the names from a base to a place in or below it, None if it is elsewhere."""
    if isinstance(place, StorageUrl):
        return str(place.relative_to(base)) if place.is_relative_to(base) else None
    if isinstance(base, StorageUrl) or not place.is_relative_to(base):
        return None
    return place.relative_to(base).as_posix()
