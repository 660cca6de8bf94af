"""The fingerprint of a failure: equal in two attempts if a function failed in the same way."""

from __future__ import annotations

import hashlib
import os
import re
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.common import pickling

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
_STANDARD_LIBRARY = f"{sysconfig.get_path('stdlib')}{os.sep}"
_ADDRESS = re.compile(r"\bat 0x[0-9a-f]+")
_OUTAGE = re.compile(r"Connect|Timeout|TimedOut|Unavailable|OperationalError|RpcError")
"""In the class names of exceptions that libraries raise when a server is unreachable or busy."""


def failure_fingerprint(step: str, record: Any, error: BaseException) -> str:
    """Return the fingerprint of an exception in a step: of the step, its class, line and record.

    It is empty for an exception that may come from an outage, of a server or of this host: the
    next attempt may succeed.
    """
    if may_be_outage(error):
        return ""
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    facts = step, kind, program_line(error), _digest_of(record)
    return _hash("\n".join(facts).encode("utf-8", "backslashreplace"))


def may_be_outage(error: BaseException) -> bool:
    """Tell whether an exception may come from an outage, of a server or of this host."""
    return any(_is_outage(e) for e in _chain(error))


def program_line(error: BaseException) -> str:
    """Return `file:line` of the innermost frame of a program or a library of its own, or ""."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not _is_foreign(f.filename)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


def _is_foreign(file: str) -> bool:
    if file.startswith(_STANDARD_LIBRARY):
        return "site-packages" not in file
    return file.startswith((_PACKAGE, "<frozen "))


def _is_outage(error: BaseException) -> bool:
    if isinstance(error, OSError | EOFError | MemoryError):
        return True
    return any(_OUTAGE.search(kind.__name__) for kind in type(error).__mro__)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its causes, and the exceptions that were being handled."""
    todo, seen = [error], set()
    while todo:
        one = todo.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            todo += [e for e in (one.__cause__, one.__context__) if e is not None]


def _digest_of(record: Any) -> str:
    """Return a digest of a record that is the same in another process."""
    try:
        text = repr(record)
        if not _ADDRESS.search(text):
            return _hash(text.encode("utf-8", "backslashreplace"))
        return _hash(pickling.dumps(record))
    except Exception:
        return type(record).__qualname__


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
