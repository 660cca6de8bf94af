"""Options that all commands share: settings from outside, the checkpoint directory, the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from penstock.checkpoint.job_dir import JobDir, find_job
from penstock.common.checkpoint_options import CHECKPOINT_DIR
from penstock.common.config_options import read
from penstock.common.configuration import Configuration
from penstock.common.configuration_file import ambient_configuration, load_configuration
from penstock.common.known_options import check_pair, overlay
from penstock.common.recovery_options import HEARTBEAT_TIMEOUT
from penstock.errors import ConfigurationError
from penstock.ids import JobKey

__all__ = [
    "Given",
    "directory_option",
    "echo_json",
    "job_at",
    "json_option",
    "overrides_of",
    "settings_options",
]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Given:
    """What the settings say to a command that looks at jobs and does not run one."""

    directory: Path
    heartbeat_timeout_s: float

    @classmethod
    def read(
        cls, defines: tuple[str, ...], config: Path | None, directory: Path | None = None
    ) -> Given:
        """Read `config.yaml`, and over it CONFIG, the -D's and --dir.

        Raises:
            ConfigurationError: a setting cannot be used, or none names a checkpoint directory.
        """
        configuration = ambient_configuration()
        overlay(configuration, overrides_of(defines, config))
        directory = directory or read(configuration, CHECKPOINT_DIR)
        if directory is None:
            message = (
                f"no checkpoint directory is known: give --dir, or set {CHECKPOINT_DIR.key} with "
                "-D, in the file of -c, or in config.yaml of PENSTOCK_CONF_DIR"
            )
            raise ConfigurationError(message)
        timeout = read(configuration, HEARTBEAT_TIMEOUT)
        return cls(directory.absolute(), timeout.total_seconds())


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
        check_pair(key.strip(), value)
        overlay(overrides, Configuration().set_string(key.strip(), value))
    return overrides


def settings_options(command: F) -> F:
    """Add -D and -c."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    command = click.option(
        "-c", "--config", type=file, help="Settings, over config.yaml of PENSTOCK_CONF_DIR."
    )(command)
    return click.option(
        "-D", "defines", multiple=True, metavar="KEY=VALUE", help="One setting, over all files."
    )(command)


def directory_option(command: F) -> F:
    """Add --dir, -D and -c."""
    where = click.Path(file_okay=False, path_type=Path)
    command = settings_options(command)
    return click.option(
        "--dir", "directory", type=where, help="Checkpoint directory; else the settings name it."
    )(command)


def json_option(command: F) -> F:
    """Add --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def echo_json(facts: object) -> None:
    """Print facts for machines."""
    click.echo(msgspec.json.format(msgspec.json.encode(facts)).decode())


def job_at(
    job: str, defines: tuple[str, ...], config: Path | None, directory: Path | None
) -> tuple[JobDir, Given]:
    """Return the job that a command line names by its id, its name or the path of its directory.

    Raises:
        ConfigurationError: it is no path, and no checkpoint directory is known.
        UnknownJobError: there is no such job.
        AmbiguousJobError: several have this name.
    """
    path = Path(job).absolute()
    if ("/" in job or directory is None) and (path / "journal").is_dir():
        place = JobDir(path.parent, JobKey(path.name))
        return place, Given.read(defines, config, path.parent)
    given = Given.read(defines, config, directory)
    return find_job(given.directory, job), given
