"""Errors of the configuration and of the machine that a job runs on."""

from penstock.errors.base import PenstockError


class ConfigurationError(PenstockError):
    """A configuration cannot be used."""

    is_permanent = True


class UnknownOptionError(ConfigurationError):
    """A configuration holds a key that neither penstock nor Flink knows."""

    key: str
    nearest: str | None = None

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest!r}?" if self.nearest else ""
        return f"unknown configuration key {self.key!r}{hint}"


class OptionValueError(ConfigurationError):
    """The value of a known configuration key does not parse."""

    key: str
    value: object
    expected: str
    template = "configuration key {key!r} needs {expected}; got {value}"


class UnusableDirectoryError(ConfigurationError):
    """A directory that a configuration key names cannot be created or written to."""

    key: str
    path: str
    reason: str
    template = (
        "directory {path!r} cannot be used: {reason}; correct its permissions, or set {key} to "
        "another directory"
    )


class UnsharedWorkDirError(ConfigurationError):
    """A host does not see the work directory, and there is no store to use instead."""

    path: str
    host: str
    is_permanent = True
    template = (
        "host {host} does not have the work directory {path}: set penstock.work-dir to a directory "
        "that driver and executors share, or execution.checkpointing.dir to a store such as "
        "s3://bucket/path, with which hosts need to share nothing else"
    )


class PortInUseError(ConfigurationError):
    """Spark cannot open a port of this host."""

    key: str
    port: int
    template = (
        "port {port} of this host is in use: set {key} to a free port, or leave it out and let "
        "Spark choose one"
    )


class ConfigurationFileError(ConfigurationError):
    """A configuration file is missing, or a line of it cannot be used."""

    path: str
    line: int | None
    reason: str

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}, line {self.line}"
        return f"configuration file {where}: {self.reason}"


class RuntimeSetupError(PenstockError):
    """Something penstock runs on is missing or has the wrong version; says what to install."""
