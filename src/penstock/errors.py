"""Every error penstock raises on purpose.

Errors cross processes, so each one hands its facts to ``Exception.args`` in the order of
its constructor (which is what makes it pickle) and builds its text only when asked.
"""

_LONGEST_VALUE = 200


class _Shown(str):
    """The repr of a value that itself may not pickle; showing it twice changes nothing."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _show(value: object) -> _Shown:
    text = repr(value)
    if len(text) > _LONGEST_VALUE:
        text = text[: _LONGEST_VALUE - 1] + "…"
    return _Shown(text)


class PenstockError(Exception):
    """Root of all errors raised by penstock."""


class ConfigurationError(PenstockError):
    """A configuration cannot be used as it is."""


class UnknownOptionError(ConfigurationError):
    """A configuration holds a key that neither penstock nor Flink knows."""

    def __init__(self, key: str, nearest: str | None = None) -> None:
        super().__init__(key, nearest)
        self.key = key
        self.nearest = nearest

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest!r}?" if self.nearest else ""
        return f"unknown configuration key {self.key!r}{hint}"


class OptionValueError(ConfigurationError):
    """The value of a known configuration key does not parse."""

    def __init__(self, key: str, value: object, expected: str) -> None:
        self.shown = _show(value)
        super().__init__(key, self.shown, expected)
        self.key = key
        self.expected = expected

    def __str__(self) -> str:
        return f"configuration key {self.key!r} needs {self.expected}; got {self.shown}"


class TypeMismatchError(PenstockError):
    """A value does not fit the type declared for it.

    ``path`` names the place inside the record (``"f1.amount"``), empty for the record itself.
    """

    def __init__(self, path: str, value: object, type_info: object) -> None:
        self.shown = _show(value)
        super().__init__(path, self.shown, type_info)
        self.path = path
        self.type_info = type_info

    def __str__(self) -> str:
        where = f"field {self.path!r}" if self.path else "the record"
        return f"{where} does not fit its declared type {self.type_info!r}; got {self.shown}"
