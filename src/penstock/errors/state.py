"""Errors of keyed and operator state."""

from penstock.errors.base import PenstockError
from penstock.errors.job import TypeMismatchError


class StateTypeMismatchError(TypeMismatchError):
    """A value put into keyed state does not match the type its descriptor declares."""

    step: str
    state: str
    key: object
    call_site: str = ""
    """The line of the program that stored the value; of its step, if that is not known."""

    def __str__(self) -> str:
        where = f", field {self.path!r}," if self.path else ""
        return (
            f"step {self.step!r}, state {self.state!r}, key {self.key}{where} does not match its "
            f"declared type {self.type_info!r}; got {self.value}{_stored_at(self.call_site)}"
        )


class OperatorStateTypeMismatchError(TypeMismatchError):
    """An element put into operator state does not match the type its descriptor declares."""

    step: str
    state: str
    call_site: str = ""
    """The line of the program that stored the value; of its step, if that is not known."""

    def __str__(self) -> str:
        where = f", field {self.path!r}" if self.path else ""
        return (
            f"step {self.step!r}, operator state {self.state!r}: an element{where} does not match "
            f"its declared type {self.type_info!r}; got {self.value}{_stored_at(self.call_site)}"
        )


def _stored_at(call_site: str) -> str:
    return f"; it was stored at {call_site}" if call_site else ""


class UnstableKeyError(PenstockError):
    """A key is of a class whose encoded bytes may differ between processes."""

    step: str
    key: object
    class_name: str = ""
    is_permanent = True

    def __post_init__(self) -> None:
        cls = type(self.key)
        self.class_name = self.class_name or f"{cls.__module__}.{cls.__qualname__}"
        super().__post_init__()

    def __str__(self) -> str:
        where = f"step {self.step!r}: " if self.step else ""
        return (
            f"{where}a key must be a str, int, float, bool, bytes, Decimal, date, time, datetime, "
            f"Row, None, or a plain tuple, list or dict of these; got {self.key} of class "
            f"{self.class_name}; {self._advice()}"
        )

    def _advice(self) -> str:
        if self.class_name.startswith("numpy."):
            return "turn a numpy scalar into a Python value in the key selector: int(x), float(x)"
        if self.class_name.startswith("datetime."):
            return "use a naive time or one with a fixed offset: x.astimezone(timezone.utc)"
        return "let the key selector return one of those: str(x), x.name, tuple(x), …"


class StateDeclaredTwiceError(PenstockError):
    """One state name is declared with two kinds or types."""

    step: str
    state: str
    known: str
    declared: str
    is_permanent = True
    template = (
        "step {step!r}: state {state!r} was declared as {known} and is now declared as {declared}; "
        "give one of the two another name"
    )


class StateTypeChangedError(PenstockError):
    """A state is declared with a type to which its stored values cannot be converted."""

    step: str
    state: str
    stored: str
    declared: str
    reason: str
    is_permanent = True
    template = (
        "step {step!r}: state {state!r} is stored as {stored} and now declared as {declared}: "
        "{reason}; declare the stored type again, or give the new state another name and fill it "
        "from the old one"
    )


class CorruptStateError(PenstockError):
    """A state file is damaged, truncated, or not the one that was written."""

    path: str
    reason: str
    template = "state file {path} cannot be used: {reason}; the file was not changed"


class StateElsewhereError(PenstockError):
    """Changes of the state since the last checkpoint are on another host, or lost with it."""

    path: str
    template = (
        "state file {path} is not on this host: the subtask ran on another one, and hosts share no "
        "directory; the job goes on from its last checkpoint"
    )


class UnsharedHostError(PenstockError):
    """A task ran on a host that does not see the work directory."""

    host: str
    path: str
    template = (
        "host {host} does not see {path}, which the hosts shared that the attempt has looked at: "
        "it joined later; the job resumes from its last checkpoint and looks at its hosts again"
    )


class LocalStateDirFullError(PenstockError):
    """A host has no space for its local copy of the state."""

    path: str
    reason: str
    template = (
        "local state cannot be written to {path} ({reason}): free space there, or set "
        "penstock.state.local-dir, or PENSTOCK_STATE_LOCAL_DIR on that host, to a larger disk"
    )


class UnsafeLocalStateDirError(PenstockError):
    """A local state directory is not this user's own, so another user may have written there."""

    path: str
    reason: str
    template = (
        "local state directory {path} is not used, because {reason}: remove it, or set "
        "penstock.state.local-dir to a directory in which other users cannot create files"
    )


class StateTooLargeError(PenstockError):
    """A state has outgrown the memory backend."""

    step: str
    state: str
    size: int
    limit: int
    is_permanent = True
    template = (
        "step {step!r}: state {state!r} takes {size} bytes, more than the {limit} the memory "
        "backend keeps; set state.backend.type: hashmap"
    )


class OperatorStateTooLargeError(StateTooLargeError):
    """A list of operator state is too large to be sent with every micro-batch."""

    template = (
        "step {step!r}: operator state {state!r} takes {size} bytes, more than the {limit} that "
        "may be sent with every micro-batch; keep growing data in keyed state, after a key_by()"
    )
