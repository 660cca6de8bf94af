"""Options and arguments that several commands share."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from penstock.checkpoint.storage.job_dir import JobDir, find_job, is_job
from penstock.client.job_overview import JobOverview, job_name, overview
from penstock.common.config.checkpoint_options import CHECKPOINT_DIR, SAVEPOINT_DIR
from penstock.common.config.configuration_file import global_configuration, load_configuration
from penstock.common.config.known_options import check_option, overlay
from penstock.common.config.locations import parse_location
from penstock.common.config.option_kinds import LOCATION
from penstock.common.config.recovery_options import HEARTBEAT_TIMEOUT
from penstock.common.config_options import read
from penstock.common.configuration import Configuration
from penstock.common.storage_url import Location, StorageUrl
from penstock.errors import ConfigurationError
from penstock.ids import JobKey
from penstock.storage.storage_options import storage_options

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def as_path(
    ctx: click.Context | None,
    param: click.Parameter | None,
    value: str | None,
    *,
    hint: str | None = None,
    parse: Callable[[str], Location] = parse_location,
) -> Location | None:
    """Return the place that an option or argument names; a callback of click.

    Raises:
        click.BadParameter: it names a place that is not supported.
    """
    if value is None:
        return None
    try:
        return parse(value)
    except ValueError:
        message = f"{value!r} is not {LOCATION.expected}"
        raise click.BadParameter(message, ctx, param, hint) from None


def as_sent_path(
    ctx: click.Context | None, param: click.Parameter | None, value: str | None
) -> Location | None:
    """Return the same as `as_path`, and refuse what cannot be written in a request or journal."""
    return as_path(ctx, param, value, parse=LOCATION.parse)


def as_directory(
    ctx: click.Context | None, param: click.Parameter | None, value: str | None
) -> Location | None:
    """Return the same as `as_path`, and refuse a file."""
    path = as_path(ctx, param, value)
    if isinstance(path, Path) and path.is_file():
        message = f"{str(path)!r} is a file"
        raise click.BadParameter(message, ctx, param)
    return path


F = TypeVar("F", bound=Callable[..., Any])

JOB_HELP = "    JOB is an id, a name, or the path of a job's directory."


@dataclass(frozen=True, slots=True)
class CommandSettings:
    """The settings of a command that inspects jobs and does not run one."""

    directory: Location
    """The checkpoint directory."""
    heartbeat_timeout_s: float
    storage_options: Mapping[str, str]
    """How stores are reached."""
    savepoint_directory: Location | None
    """Where savepoints go by default."""

    @classmethod
    def read(
        cls, defines: tuple[str, ...], config: Path | None, directory: Location | None
    ) -> CommandSettings:
        """Read `config.yaml`, and over it CONFIG, the -D options and --dir.

        Raises:
            ConfigurationError: a setting cannot be used, or no checkpoint directory is set.
        """
        configuration = settings_of(defines, config)
        directory = directory or read(configuration, CHECKPOINT_DIR)
        if directory is None:
            message = (
                f"no checkpoint directory is known: give --dir, or set {CHECKPOINT_DIR.key} with "
                "-D, in the file of -c, or in config.yaml of PENSTOCK_CONF_DIR"
            )
            raise ConfigurationError(message)
        timeout = read(configuration, HEARTBEAT_TIMEOUT)
        options = storage_options(configuration)
        savepoints = read(configuration, SAVEPOINT_DIR)
        return cls(reached_with(options, directory), timeout.total_seconds(), options, savepoints)


@dataclass(frozen=True, slots=True)
class SelectedJob:
    """The job that a command line names."""

    directory: JobDir
    heartbeat_timeout_s: float

    @classmethod
    def find(
        cls, job: str, defines: tuple[str, ...], config: Path | None, directory: Location | None
    ) -> SelectedJob:
        """Find a job by its id, its name or the path of its directory.

        Raises:
            ConfigurationError: it is not a path, and no checkpoint directory is known.
            UnknownJobError: there is no such job.
            AmbiguousJobError: several jobs have this name.
        """
        path: Location = Path(job).absolute()
        if _URL.match(job):
            path = as_path(None, None, job, hint="JOB") or path
        if "/" in job or directory is None:
            settings = CommandSettings.read(defines, config, path.parent)
            at_path = JobDir(settings.directory, JobKey(path.name), settings.storage_options)
            if is_job(at_path):
                return cls(at_path, settings.heartbeat_timeout_s)
        settings = CommandSettings.read(defines, config, directory)
        found = find_job(settings.directory, job)
        return cls(replace(found, options=settings.storage_options), settings.heartbeat_timeout_s)

    @property
    def id(self) -> str:
        """The id of the job."""
        return self.directory.key

    @property
    def name(self) -> str:
        """The name of the job."""
        return job_name(self.directory)

    def overview(self) -> JobOverview:
        """Read the current status of the job."""
        return overview(self.directory, self.heartbeat_timeout_s, time.time())


def reached_with(options: Mapping[str, str], location: Location) -> Location:
    """Return a location that is reached with the settings of a command, if it is in a store."""
    return location.with_options(options) if isinstance(location, StorageUrl) else location


def settings_of(defines: tuple[str, ...], config: Path | None) -> Configuration:
    """Return `config.yaml`, and over it CONFIG and the -D options.

    Raises:
        ConfigurationError: a key or value cannot be used.
    """
    configuration = global_configuration()
    overlay(configuration, overrides_of(defines, config))
    return configuration


def overrides_of(defines: tuple[str, ...], config: Path | None) -> Configuration:
    """Return the settings of a command line: a file, and over it `key=value` pairs.

    Raises:
        ConfigurationError: a key or value cannot be used.
    """
    overrides = Configuration() if config is None else load_configuration(config)
    for define in defines:
        key, equals, value = define.partition("=")
        if not equals or not key:
            msg = f"{define!r} is not of the form key=value"
            raise click.BadParameter(msg, param_hint="-D")
        check_option(key.strip(), value)
        overlay(overrides, Configuration().set_string(key.strip(), value))
    return overrides


def settings_options(command: F) -> F:
    """Add -D and -c."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    command = click.option(
        "-c", "--config", type=file, help="Configuration file, over config.yaml."
    )(command)
    return click.option(
        "-D", "defines", multiple=True, metavar="KEY=VALUE", help="One setting, over all files."
    )(command)


def directory_options(command: F) -> F:
    """Add --dir, -D and -c."""
    return click.option(
        "--dir",
        "directory",
        callback=as_directory,
        metavar="DIRECTORY",
        help="Checkpoint directory, if no setting names it.",
    )(settings_options(command))


def job_argument(command: Callable[..., None]) -> Callable[..., None]:
    """Add JOB, --dir, -D and -c; the command gets a `SelectedJob` as its first argument."""

    @click.argument("job")
    @directory_options
    @functools.wraps(command)
    def with_job(
        job: str,
        defines: tuple[str, ...],
        config: Path | None,
        directory: Location | None,
        **options: Any,
    ) -> None:
        command(SelectedJob.find(job, defines, config, directory), **options)

    with_job.__doc__ = f"{command.__doc__}\n\n{JOB_HELP}"
    return with_job


def json_option(command: F) -> F:
    """Add --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def timeout_option(command: F) -> F:
    """Add --timeout."""
    seconds = click.FloatRange(min=0)
    return click.option(
        "--timeout", type=seconds, metavar="S", help="Seconds to wait; without it, no limit."
    )(command)
