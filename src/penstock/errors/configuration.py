"""Errors of configurations and of the machine a job is to run on."""

from penstock.errors.base import PenstockError, show


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
        self.shown = show(value)
        super().__init__(key, self.shown, expected)
        self.key = key
        self.expected = expected

    def __str__(self) -> str:
        return f"configuration key {self.key!r} needs {self.expected}; got {self.shown}"


class ConfigurationFileError(ConfigurationError):
    """A file of settings is missing or holds something that cannot be used."""

    def __init__(self, path: str, line: int | None, reason: str) -> None:
        super().__init__(path, line, reason)
        self.path = path
        self.line = line
        self.reason = reason

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}, line {self.line}"
        return f"configuration file {where}: {self.reason}"


class RuntimeSetupError(PenstockError):
    """What penstock runs on is missing or of the wrong version; says what to install."""
