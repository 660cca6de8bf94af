"""The settings of a job that apply to all of its sources: limits, and what to do with changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.common.config.source_options import CHANGED_FILES, MAX_BLOCK_SIZE, MAX_RECORD_SIZE
from penstock.common.config_options import read
from penstock.common.configuration import Configuration
from penstock.errors import InputTooLargeError
from penstock.storage.storage_options import storage_options


@dataclass(frozen=True, slots=True)
class InputSettings:
    """How much of an input may be in memory at once, and whether its files may change."""

    max_record_bytes: int = MAX_RECORD_SIZE.default
    max_block_bytes: int = MAX_BLOCK_SIZE.default
    accepts_changed_files: bool = False
    storage_options: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """How to reach stores; may hold credentials, and is never written down."""

    @staticmethod
    def from_configuration(configuration: Configuration) -> InputSettings:
        """Read the settings of a job."""
        return InputSettings(
            read(configuration, MAX_RECORD_SIZE),
            read(configuration, MAX_BLOCK_SIZE),
            read(configuration, CHANGED_FILES) == "accept",
            storage_options(configuration),
        )

    def record_too_large(self, what: str) -> InputTooLargeError:
        """Return the error for a record above the limit; ``what`` says where it is."""
        return InputTooLargeError(what, self.max_record_bytes, MAX_RECORD_SIZE.key)

    def block_too_large(self, what: str) -> InputTooLargeError:
        """Return the error for a block above the limit; ``what`` says where it is."""
        return InputTooLargeError(what, self.max_block_bytes, MAX_BLOCK_SIZE.key)


DEFAULT_INPUT_SETTINGS = InputSettings()
"""Those of a job that sets none."""
