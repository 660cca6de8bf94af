"""From an exception in a user function to an error its author can read."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from penstock.common import pickling
from penstock.common.frozen import is_frozen
from penstock.datastream.output_tag import is_tagged
from penstock.errors import Called, PenstockError, StepError, UserFunctionError

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


class StepFailed(Exception):
    """Carries a finished error up through the chain, past the steps before the failed one."""

    def __init__(self, error: PenstockError) -> None:
        super().__init__(error)
        self.error = error


def fail(step: str, record: Any, error: BaseException) -> NoReturn:
    """Raise `error` again as the failure of `step` on `record`."""
    if isinstance(error, StepFailed):
        raise error
    if isinstance(error, PenstockError):
        if getattr(error, "step", None):
            raise StepFailed(error) from error  # it says itself where it happened
        raise StepFailed(StepError(step, record, str(error))) from error
    raise StepFailed(
        UserFunctionError(step, record, _cause(error), user_traceback(error))
    ) from error


def not_iterable(error: BaseException, results: Any) -> BaseException:
    """Return a better error where a function returned something that cannot be gone through."""
    if not isinstance(error, TypeError) or results is None or hasattr(results, "__iter__"):
        return error
    message = f"the function must return an iterable or None; it returned {results!r}"
    return TypeError(message)


def fail_outside_records(step: str, method: str, error: BaseException) -> NoReturn:
    """Raise `error` again as the failure of a function's `open` or `close`."""
    if isinstance(error, StepFailed):
        raise error
    if isinstance(error, PenstockError):
        if getattr(error, "step", None):
            raise StepFailed(error) from error
        raise StepFailed(StepError(step, Called(method), str(error))) from error
    raise StepFailed(
        UserFunctionError(step, Called(method), _cause(error), user_traceback(error))
    ) from error


@contextmanager
def calling(step: str, method: str) -> Iterator[None]:
    """Name the step and the method if what is called here fails."""
    try:
        yield
    except (Exception, SystemExit) as error:
        fail_outside_records(step, method, error)


def _cause(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "it called exit(): raise an exception instead"
    return "".join(traceback.format_exception_only(error)).strip()


def copy_for_later(step: str, record: Any) -> Any:
    """Return what `step` emitted in a form that nobody can change any more."""
    if is_frozen(record):
        return record
    if is_tagged(record):
        nobody_takes(step, record, ())
    try:
        return pickling.loads(pickling.dumps(record))
    except Exception as error:
        cause = f"it cannot be pickled, which a record that leaves its step must be: {error}"
        raise StepFailed(StepError(step, record, cause)) from error


def nobody_takes(step: str, yielded: tuple[Any, ...], taken: Iterable[str]) -> NoReturn:
    """Raise: a function gave something to a side output that nobody asked for."""
    names = ", ".join(map(repr, taken)) or "none"
    cause = (
        f"nobody takes side output {yielded[0].tag_id!r} of the step (taken: {names}): "
        "use get_side_output() on it, or do not yield to it"
    )
    raise StepFailed(StepError(step, yielded, cause))


def user_traceback(error: BaseException) -> str:
    """Return the traceback of `error` without the frames of this package."""
    shown = traceback.TracebackException.from_exception(error)
    for part in _causes(shown):
        kept = [f for f in part.stack if not f.filename.startswith(_PACKAGE)]
        part.stack = traceback.StackSummary.from_list(kept)
    return "".join(shown.format())


def _causes(shown: traceback.TracebackException) -> list[traceback.TracebackException]:
    parts = [shown]
    for behind in (shown.__cause__, shown.__context__):
        if behind is not None:
            parts += _causes(behind)
    return parts


def pack(error: PenstockError) -> bytes:
    """Return the error as bytes for the acknowledgement."""
    return pickle.dumps(error)


def unpack(data: bytes) -> PenstockError:
    """Return the error a task acknowledged."""
    error = pickle.loads(data)
    assert isinstance(error, PenstockError)
    return error
