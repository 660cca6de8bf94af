"""Options of the submission of programs to `penstock serve`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from penstock.common.config.option_kinds import (
    BOOLEAN,
    HOST_PATH,
    MEMORY_SIZE,
    POSITIVE_DURATION,
    POSITIVE_INTEGER,
)
from penstock.common.config_options import ConfigOption

SUBMISSION_ENABLED = ConfigOption(
    "penstock.serve.submission.enabled",
    BOOLEAN,
    False,
    "Whether operators may upload programs to the server and run them: as the server's user, with "
    "all its rights.",
)
UPLOAD_DIR: ConfigOption[Path | None] = ConfigOption(
    "penstock.serve.upload-dir",
    HOST_PATH,
    None,
    "Directory of uploaded programs, of submitted jobs and of their logs; of one server only. By "
    "default below ~/.local/state/penstock.",
)
MAX_PROGRAM_BYTES = ConfigOption(
    "penstock.serve.submission.max-program-bytes",
    MEMORY_SIZE,
    64 << 20,
    "Maximum size of an uploaded program, also when it is unpacked.",
)
MAX_LOG_BYTES = ConfigOption(
    "penstock.serve.submission.max-log-bytes",
    MEMORY_SIZE,
    64 << 20,
    "How much is retained of the log of each start of a submitted job: its end.",
)
RETAINED_STARTS = ConfigOption(
    "penstock.serve.submission.retained-starts",
    POSITIVE_INTEGER,
    10,
    "Number of starts of a submitted job whose logs are retained.",
)
START_TIMEOUT = ConfigOption(
    "penstock.serve.submission.start-timeout",
    POSITIVE_DURATION,
    timedelta(minutes=2),
    "How long a request to run a program waits until the job has started; the program may take "
    "longer.",
)
