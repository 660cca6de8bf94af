"""Which places a path may name: the only check of the scheme of a location's URL.

All settings, options and arguments that name a directory of checkpoints, savepoints or other files
of a job are parsed here, before anything is read or written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from penstock.common.storage_url import Location, StorageUrl

OBJECT_STORES = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az"}
"""The schemes of object stores, and the one that a URL gets; Spark's `s3a` is the same store."""
HDFS = "hdfs"
STORE_SCHEMES = (*OBJECT_STORES, HDFS)
SHARED = (
    "a path in a file system that driver and executors share, in UTF-8, plain or as file:// "
    "(not s3:// or other stores)"
)
PLACE = (
    "a path in a file system that driver and executors share, in UTF-8, plain or as file://, or a "
    "place in a store: s3://bucket/path, gs://bucket/path, az://container/path or "
    "hdfs://host:port/path"
)
ON_HOST = "a path on the local disks of a host, plain or as file:// (not s3:// or other stores)"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_LOCAL_HOSTS = ("", "localhost")


def scheme_of(text: str) -> str | None:
    """Return the scheme of a URL in lower case, None for a plain path."""
    found = _SCHEME.match(text)
    return None if found is None else found[1].lower()


def parse_path(text: str) -> Path:
    """Return the absolute path that a plain path or a `file:` URL names.

    Raises:
        ValueError: it is empty, or has another scheme.
    """
    scheme = scheme_of(text)
    if scheme is not None:
        parts = urlsplit(text)
        if scheme != "file" or parts.netloc not in _LOCAL_HOSTS:
            raise ValueError(text)
        text = unquote(parts.path)
    if not text:
        raise ValueError(text)
    return Path(text).absolute()


def parse_location(text: str, options: Mapping[str, str] | None = None) -> Location:
    """Return the place that a plain path or a URL names.

    The options are those for reaching a store.

    Raises:
        ValueError: it is empty, has a scheme that is not supported, or names no bucket or host.
    """
    scheme = scheme_of(text)
    if scheme not in STORE_SCHEMES:
        return parse_path(text)
    # Not urlsplit: the name of an object may have `?` and `#`, which are no query and no fragment.
    head, _, rest = text.partition("://")
    authority, _, path = rest.partition("/")
    names = tuple(name for name in path.split("/") if name)
    if not head or not authority or "@" in authority or not {".", ".."}.isdisjoint(names):
        raise ValueError(text)
    return StorageUrl(OBJECT_STORES.get(scheme, scheme), authority, names, dict(options or {}))


def below(base: Location, text: str, options: Mapping[str, str] | None = None) -> Location:
    """Return the place that a stored text names: a URL, an absolute path, or a path below `base`.

    A store is reached with these options, by default with those of `base`.

    Raises:
        ValueError: it names a place that is not supported.
    """
    if scheme_of(text) in STORE_SCHEMES:
        inherited = base.options if isinstance(base, StorageUrl) else {}
        return parse_location(text, inherited if options is None else options)
    if isinstance(base, Path):
        return base / text
    return Path(text) if text.startswith("/") else base / text
