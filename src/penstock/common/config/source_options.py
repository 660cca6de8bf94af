"""Options of sources: limits of their input, and files that change."""

from __future__ import annotations

from penstock.common.config.option_kinds import MEMORY_SIZE, choice
from penstock.common.config_options import ConfigOption

MAX_RECORD_SIZE = ConfigOption(
    "penstock.source.max-record-size",
    MEMORY_SIZE,
    64 << 20,
    "Maximum size of a line of a file or socket, and of a message of a broker; a larger one fails "
    "the job before it is in memory.",
)
MAX_BLOCK_SIZE = ConfigOption(
    "penstock.source.max-block-size",
    MEMORY_SIZE,
    256 << 20,
    "Maximum size of what can only be read as a whole: a decompressed Avro block, a file in a "
    "charset such as UTF-16, CSV lines joined by quotes.",
)
CHANGED_FILES = ConfigOption(
    "penstock.source.changed-files",
    choice("fail", "accept"),
    "fail",
    "What happens when a file has changed after the job began to read it: the job fails, or it "
    "continues at its position in the new content.",
)
