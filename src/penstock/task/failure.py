"""Turns an exception in a user function into an error that names the step and the record."""

from __future__ import annotations

import dataclasses
import os
import pickle
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from penstock.common import pickling
from penstock.common.frozen import is_frozen
from penstock.datastream.output_tag import is_tagged
from penstock.errors import (
    BadDataError,
    MethodCall,
    PenstockError,
    StepError,
    TypeMismatchError,
    UserFunctionError,
)
from penstock.task.fingerprint import failure_fingerprint, may_be_outage, program_line
from penstock.task.step_names import StepName

T = TypeVar("T")

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


class StepFailed(Exception):
    """Carries a finished error up through the chain, past the steps before the failed one."""

    def __init__(self, error: PenstockError) -> None:
        super().__init__(error)
        self.error = error


def fail(step: str, record: Any, error: BaseException) -> NoReturn:
    """Raise `error` again as the failure of `step` on `record`, or in a `MethodCall`.

    If the record does not match the type that the step before declares for it, that step fails.
    """
    if isinstance(error, StepFailed):
        raise error  # of a step downstream
    if (
        isinstance(step, StepName)
        and not isinstance(record, MethodCall)
        and _concerns_record(error)
    ):
        _fail_producer(step, record, error)
    if isinstance(error, PenstockError):
        if getattr(error, "step", None):
            raise StepFailed(with_call_site(error)) from error  # it names its step itself
        raise StepFailed(_step_error(step, record, error)) from error
    cause, user_code = _cause(error), user_traceback(error)
    fingerprint = failure_fingerprint(step, record, error)
    raise StepFailed(UserFunctionError(str(step), record, cause, user_code, fingerprint)) from error


def _concerns_record(error: BaseException) -> bool:
    """Tell whether the record may be the reason of an error; a full disk, for example, is not."""
    if isinstance(error, PenstockError):
        return isinstance(error, TypeMismatchError | BadDataError)
    return not may_be_outage(error)


def _fail_producer(step: StepName, record: Any, error: BaseException) -> None:
    """Raise the failure of the step that produced a record, if its declared type is not kept."""
    mismatch = step.input_mismatch(record)
    if mismatch is None or step.producer is None:
        return
    consequence = ""
    if type(error) is not TypeMismatchError:
        consequence = f"; step {str(step)!r} failed on it: {_cause(error)}"
    raise StepFailed(_step_error(step.producer, record, mismatch, consequence)) from error


def _step_error(step: str, record: Any, error: PenstockError, more: str = "") -> StepError:
    return StepError(
        str(step),
        record,
        f"{error}{more}",
        getattr(step, "call_site", ""),
        error.is_permanent,
        error.fingerprint,
    )


def with_call_site(error: PenstockError, otherwise: str = "") -> PenstockError:
    """Return an error with the line of the program that raised it, if it has a field for it."""
    if getattr(error, "call_site", None) != "":
        return error
    call_site = program_line(error) or otherwise
    return dataclasses.replace(error, call_site=call_site)  # type: ignore[type-var]


def encode_records(step: str, records: Sequence[Any], encode: Callable[[Sequence[Any]], T]) -> T:
    """Encode records of `step`; if that fails, name the first record that cannot be encoded."""
    try:
        return encode(records)
    except (PenstockError, ValueError) as error:
        for record in records:
            try:
                encode([record])
            except (PenstockError, ValueError) as at_fault:
                fail(step, record, at_fault)
        fail(step, MethodCall(f"the encoding of {len(records)} records"), error)


def not_iterable(error: BaseException, results: Any) -> BaseException:
    """Return a clearer error if a function returned something that cannot be iterated over."""
    if not isinstance(error, TypeError) or results is None or hasattr(results, "__iter__"):
        return error
    message = f"the function must return an iterable or None; it returned {results!r}"
    return TypeError(message)


@contextmanager
def calling(step: str, method: str) -> Iterator[None]:
    """Name the step and the method in an error of what is called here."""
    try:
        yield
    except (Exception, SystemExit) as error:
        fail(step, MethodCall(method), error)


def _cause(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "it called exit(): raise an exception instead"
    return "".join(traceback.format_exception_only(error)).strip()


def copy_if_mutable(step: str, record: Any) -> Any:
    """Return a record of `step` in a form that no function can change any more."""
    if is_frozen(record):
        return record
    if is_tagged(record):
        fail_unknown_side_output(step, record, ())
    try:
        return pickling.loads(pickling.dumps(record))
    except Exception as error:
        cause = f"it cannot be pickled, which a record that leaves its step must be: {error}"
        raise StepFailed(StepError(str(step), record, cause, is_permanent=True)) from error


def fail_unknown_side_output(step: str, yielded: tuple[Any, ...], read: Iterable[str]) -> NoReturn:
    """Raise: a function yielded a record to a side output that is not read."""
    names = ", ".join(map(repr, read)) or "none"
    cause = (
        f"side output {yielded[0].tag_id!r} of the step is not read (read: {names}): "
        "call get_side_output() on its stream, or do not yield to it"
    )
    raise StepFailed(StepError(str(step), yielded, cause, is_permanent=True))


def user_traceback(error: BaseException) -> str:
    """Return the traceback of `error` without the frames of this package."""
    shown = traceback.TracebackException.from_exception(error)
    for part in _with_causes(shown):
        kept = [f for f in part.stack if not f.filename.startswith(_PACKAGE)]
        part.stack = traceback.StackSummary.from_list(kept)
    return "".join(shown.format())


def _with_causes(shown: traceback.TracebackException) -> list[traceback.TracebackException]:
    causes = [c for c in (shown.__cause__, shown.__context__) if c is not None]
    return [shown, *(part for cause in causes for part in _with_causes(cause))]


def pack(error: PenstockError) -> bytes:
    """Return the error as bytes for the acknowledgement."""
    return pickle.dumps(error)


def unpack(data: bytes) -> PenstockError:
    """Return the error a task acknowledged."""
    error = pickle.loads(data)
    assert isinstance(error, PenstockError)
    return error
