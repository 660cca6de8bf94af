"""Errors of the settings of stores; failing requests raise an `OSError` with the file's URL."""

from penstock.errors.configuration import ConfigurationError


class StorageSettingsError(ConfigurationError):
    """The settings of a store cannot be used."""

    key: str
    reason: str
    template = "setting {key}: {reason}"
