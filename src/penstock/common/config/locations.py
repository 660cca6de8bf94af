"""Which places a path may name: the only check of the scheme of a directory's URL.

All settings, options and arguments that name a directory of checkpoints, savepoints or other files
of a job are parsed here, before anything is read or written.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

SUPPORTED_SCHEMES = ("file",)
"""The schemes of URLs that are accepted; a path without one is local or on a mounted file system.

A new one is added here, to `parse_location`, which then returns more than a path, and to SHARED.
"""
SHARED = (
    "a path in a file system that driver and executors share, in UTF-8, plain or as file:// "
    "(object stores such as s3:// are not in this version)"
)
ON_HOST = (
    "a path on the local disks of a host, plain or as file:// (not s3:// or other object stores)"
)

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_LOCAL_HOSTS = ("", "localhost")


def scheme_of(text: str) -> str | None:
    """Return the scheme of a URL in lower case, None for a plain path."""
    found = _SCHEME.match(text)
    return None if found is None else found[1].lower()


def parse_location(text: str) -> Path:
    """Return the absolute path that a plain path or a URL names.

    Raises:
        ValueError: it is empty, or has a scheme that is not supported.
    """
    scheme = scheme_of(text)
    if scheme is not None:
        parts = urlsplit(text)
        if scheme not in SUPPORTED_SCHEMES or parts.netloc not in _LOCAL_HOSTS:
            raise ValueError(text)
        text = unquote(parts.path)
    if not text:
        raise ValueError(text)
    return Path(text).absolute()
