"""Requests to run a program, with Flink's fields, and the settings that they mean."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.common.config.checkpoint_options import (
    CHECKPOINT_DIR,
    CLAIM_MODE,
    FRESH,
    IGNORE_UNCLAIMED_STATE,
    JOB_ID,
    RESTORE_PATH,
)
from penstock.common.config.known_options import PARALLELISM, check_option, overlay
from penstock.common.config_options import ConfigOption, read
from penstock.common.configuration import Configuration
from penstock.common.job_id import JobID
from penstock.common.storage_url import Location
from penstock.errors import ConfigurationError, InvalidSubmissionError
from penstock.redaction import redact

_HEX_ID = re.compile(r"[0-9A-Fa-f]{32}")
_MOST_TEXT = 100_000


class RunRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The body of Flink's request to run a JAR file."""

    entry_class: str | None = None
    """The module of an archive that is run."""
    program_args: str | None = None
    program_args_list: list[str] | None = None
    parallelism: int | None = None
    job_id: str | None = None
    allow_non_restored_state: bool | None = None
    savepoint_path: str | None = None
    restore_mode: str | None = None
    """The older name of `claim_mode`."""
    claim_mode: str | None = None
    flink_configuration: dict[str, str] | None = None

    @classmethod
    def parse(cls, body: bytes) -> RunRequest:
        """Return the request in a body, which may be empty.

        Raises:
            InvalidSubmissionError: it is malformed.
        """
        try:
            return msgspec.json.decode(body, type=cls) if body.strip() else cls()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidSubmissionError(redact(str(error))) from error

    @property
    def arguments(self) -> list[str]:
        """The arguments of the program.

        Raises:
            InvalidSubmissionError: they cannot be split, are too long, or are there twice.
        """
        given = self.program_args_list
        if given and self.program_args:
            reason = "programArgs and programArgsList are both there: use programArgsList only"
            raise InvalidSubmissionError(reason)
        if not given:
            try:
                given = shlex.split(self.program_args or "")
            except ValueError as error:
                reason = f"programArgs: {error}"
                raise InvalidSubmissionError(reason) from error
        if sum(map(len, given)) > _MOST_TEXT or any("\0" in text for text in given):
            reason = f"the arguments are longer than {_MOST_TEXT} characters, or contain NUL"
            raise InvalidSubmissionError(reason)
        return given


class JobSpec(msgspec.Struct, frozen=True):
    """What a request asks for, validated."""

    job: str
    arguments: list[str]
    settings: dict[str, str]
    """All but what only the first start restores."""
    restore_path: str | None = None
    fresh: bool = False


def job_spec(request: RunRequest, directory: Location, defaults: Mapping[str, str]) -> JobSpec:
    """Return what a request means; `defaults` are settings of the server that it can override.

    A job without an id gets a random one, as in Flink: it is a job of its own.

    Raises:
        InvalidSubmissionError: a value cannot be used.
    """
    given: dict[str, str] = dict(request.flink_configuration or {})
    claim_mode = request.claim_mode or request.restore_mode
    fields: dict[ConfigOption[Any], Any] = {
        PARALLELISM: request.parallelism,
        JOB_ID: request.job_id,
        RESTORE_PATH: request.savepoint_path,
        CLAIM_MODE: claim_mode,
        IGNORE_UNCLAIMED_STATE: request.allow_non_restored_state,
    }
    given |= {o.key: _text(value) for o, value in fields.items() if value not in (None, "")}
    configuration = Configuration.from_dict(dict(defaults))
    try:
        for key, value in given.items():
            if any(ord(character) < ord(" ") for character in key + value):
                reason = f"setting {key[:200]!r} has a control character"
                raise InvalidSubmissionError(reason)
            check_option(key, value)
        overlay(configuration, Configuration.from_dict(given))
        job = read(configuration, JOB_ID) or JobID.generate().hex
        restore_path, fresh = read(configuration, RESTORE_PATH), read(configuration, FRESH)
        wanted = read(configuration, CHECKPOINT_DIR)
    except ConfigurationError as error:
        raise InvalidSubmissionError(redact(str(error))) from error
    if wanted is not None and str(wanted) != str(directory):
        reason = f"this server runs jobs in {directory}: leave out {CHECKPOINT_DIR.key}"
        raise InvalidSubmissionError(reason)
    if _HEX_ID.fullmatch(job):
        job = job.lower()
    own = {CHECKPOINT_DIR: str(directory), JOB_ID: job}
    overlay(configuration, Configuration.from_dict({o.key: value for o, value in own.items()}))
    for option in (RESTORE_PATH, FRESH):
        for key in (option.key, *option.fallback_keys):
            configuration.remove_config(key)
    settings = {key: str(value) for key, value in configuration.to_dict().items()}
    return JobSpec(
        job,
        request.arguments,
        settings,
        None if restore_path is None else str(restore_path),
        fresh,
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
