"""Errors of keyed and operator state."""

from penstock.errors.base import PenstockError, Shown, show
from penstock.errors.job import TypeMismatchError


class StateTypeMismatchError(TypeMismatchError):
    """A value put into keyed state does not fit the type its descriptor declares."""

    def __init__(
        self, step: str, state: str, key: object, path: str, value: object, type_info: object
    ) -> None:
        super().__init__(path, value, type_info)
        self.step = step
        self.state = state
        self.shown_key = show(key)
        self.args = (step, state, self.shown_key, path, self.shown, type_info)

    def __str__(self) -> str:
        where = f", field {self.path!r}," if self.path else ""
        return (
            f"step {self.step!r}, state {self.state!r}, key {self.shown_key}{where} "
            f"does not fit its declared type {self.type_info!r}; got {self.shown}"
        )


class UnstableKeyError(PenstockError):
    """A key is of a class whose bytes may differ from process to process."""

    def __init__(self, step: str, key: object) -> None:
        self.shown = show(key)
        self.class_name = key.class_name if isinstance(key, _KeyOfClass) else _class_name(type(key))
        super().__init__(step, _KeyOfClass(self.shown, self.class_name))
        self.step = step

    def __str__(self) -> str:
        where = f"step {self.step!r}: " if self.step else ""
        return (
            f"{where}a key must be a str, int, float, bool, bytes, Decimal, date, time, datetime, "
            f"Row, None, or a plain tuple, list or dict of these; got {self.shown} of class "
            f"{self.class_name}; {_key_advice(self.class_name)}"
        )


class _KeyOfClass(Shown):
    """A shown key that still knows its class."""

    __slots__ = ("class_name",)
    class_name: str

    def __new__(cls, shown: str, class_name: str) -> "_KeyOfClass":
        key = super().__new__(cls, shown)
        key.class_name = class_name
        return key

    def __reduce__(self) -> tuple[type["_KeyOfClass"], tuple[str, str]]:
        return _KeyOfClass, (str(self), self.class_name)


def _key_advice(class_name: str) -> str:
    if class_name.startswith("numpy."):
        return "turn a numpy scalar into a Python value in the key selector: int(x), float(x)"
    if class_name.startswith("datetime."):
        return "use a naive time or one with a fixed offset: x.astimezone(timezone.utc)"
    return "let the key selector return one of those: str(x), x.name, tuple(x), …"


def _class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


class StateDeclaredTwiceError(PenstockError):
    """One state name is declared with two kinds or types."""

    def __init__(self, step: str, state: str, known: str, declared: str) -> None:
        super().__init__(step, state, known, declared)
        self.step = step
        self.state = state
        self.known = known
        self.declared = declared

    def __str__(self) -> str:
        return (
            f"step {self.step!r}: state {self.state!r} is known as {self.known} and now declared "
            f"as {self.declared}; give one of the two another name"
        )


class StateTypeChangedError(PenstockError):
    """A state is declared with a type that what is stored of it cannot become."""

    def __init__(self, step: str, state: str, stored: str, declared: str, reason: str) -> None:
        super().__init__(step, state, stored, declared, reason)
        self.step = step
        self.state = state
        self.stored = stored
        self.declared = declared
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"step {self.step!r}: state {self.state!r} is stored as {self.stored} and now declared "
            f"as {self.declared}: {self.reason}; declare the stored type again, or give the new "
            "state another name and fill it from the old one"
        )


class CorruptStateError(PenstockError):
    """A state file is damaged, cut short or not the one that was written."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"state file {self.path} cannot be used: {self.reason}; it was left as it is"


class StateTooLargeError(PenstockError):
    """A state has outgrown the memory backend."""

    def __init__(self, step: str, state: str, size: int, limit: int) -> None:
        super().__init__(step, state, size, limit)
        self.step = step
        self.state = state
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"step {self.step!r}: state {self.state!r} takes {self.size} bytes, more than the "
            f"{self.limit} the memory backend keeps; set state.backend.type: hashmap"
        )


class OperatorStateTooLargeError(StateTooLargeError):
    """A list of operator state is too large to travel with every micro-batch."""

    def __str__(self) -> str:
        return (
            f"step {self.step!r}: operator state {self.state!r} takes {self.size} bytes, more than "
            f"the {self.limit} that may travel with every micro-batch; keep what grows in keyed "
            "state, behind a key_by()"
        )


class OperatorStateTypeMismatchError(TypeMismatchError):
    """An element put into operator state does not fit the type its descriptor declares."""

    def __init__(self, step: str, state: str, path: str, value: object, type_info: object) -> None:
        super().__init__(path, value, type_info)
        self.step = step
        self.state = state
        self.args = (step, state, path, self.shown, type_info)

    def __str__(self) -> str:
        where = f", field {self.path!r}" if self.path else ""
        return (
            f"step {self.step!r}, operator state {self.state!r}: an element{where} does not fit "
            f"its declared type {self.type_info!r}; got {self.shown}"
        )
