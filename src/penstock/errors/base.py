"""The base class of all errors: facts declared as fields, and a template for the message."""

from dataclasses import dataclass, fields, is_dataclass
from inspect import get_annotations
from typing import ClassVar, dataclass_transform

_LONGEST_REPR = 200


class ShortRepr(str):
    """The shortened repr of a value; its own repr is the same text, so shortening is idempotent."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class MethodCall(ShortRepr):
    """Takes the place of the record when a function failed in a method that gets no record."""

    __slots__ = ()


def short_repr(value: object) -> ShortRepr:
    """Return the repr of a value for a message, truncated if it is long."""
    if isinstance(value, MethodCall):
        return value
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    if len(text) > _LONGEST_REPR:
        text = text[: _LONGEST_REPR - 1] + "…"
    return ShortRepr(text)


def message_of(error: BaseException) -> str:
    """Return the message of an error, also of one whose `__str__` raises.

    Lone surrogates are escaped: no log file and no terminal takes them.
    """
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except Exception as broken:
        return f"{type(error).__name__}, whose message raises {type(broken).__name__}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: `1 file`, `2 files`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@dataclass_transform(eq_default=False)
class PenstockError(Exception):
    """Root of all errors raised by penstock.

    A subclass declares its facts as annotated fields, which are also the parameters of its
    constructor, and its message as a `template` for `str.format`; a list or tuple is inserted
    with commas. Only a message that depends on its facts overrides `__str__`. A subclass without
    fields takes its whole message.

    Errors travel from tasks to the driver, so all facts are in `args`, which is what pickle saves.
    A field annotated as `object` may hold any value, for example a record: only its shortened
    repr is stored, because the value itself may be large or impossible to pickle.
    """

    template: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if get_annotations(cls):
            dataclass(eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]  # a dataclass in every subclass with fields
            if field.type is object:
                setattr(self, field.name, short_repr(getattr(self, field.name)))
        self.args = tuple(self._facts().values())

    @property
    def is_permanent(self) -> bool:
        """Whether every further attempt would fail in the same way, so that the job must end."""
        return False

    @property
    def fingerprint(self) -> str:
        """What a failure has in common with the same failure in another attempt.

        It is empty for a failure that may be over by then, such as the outage of a server.
        """
        return ""

    def __str__(self) -> str:
        if not is_dataclass(self):
            return super().__str__()
        facts = {
            name: ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
            for name, value in self._facts().items()
        }
        return self.template.format(**facts)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.args == getattr(other, "args", None)

    def __hash__(self) -> int:
        return hash((type(self), str(self)))

    def _facts(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
