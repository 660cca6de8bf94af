"""The global configuration: `config.yaml`, overridden by the command line.

The file has the format of Flink's `config.yaml`: nested or flat keys, or both. The environment
variable PENSTOCK_CONF_DIR names its directory. These settings are the defaults of an environment,
which the program can override.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from penstock.common.config.known_options import check_option, overlay
from penstock.common.configuration import Configuration
from penstock.errors import ConfigurationError, ConfigurationFileError

CONF_DIR = "PENSTOCK_CONF_DIR"
_FILE_NAME = "config.yaml"

_overrides: dict[str, str] = {}


def global_configuration() -> Configuration:
    """Return the settings of the file, overridden by those of the command line.

    Raises:
        ConfigurationFileError: the file does not exist, or is invalid.
    """
    directory = os.environ.get(CONF_DIR)
    configuration = (
        load_configuration(Path(directory) / _FILE_NAME) if directory else Configuration()
    )
    overlay(configuration, Configuration.from_dict(_overrides))
    return configuration


def set_global_overrides(overrides: Mapping[str, str]) -> None:
    """Set the overrides for every environment that this process creates from now on."""
    _overrides.clear()
    _overrides.update(overrides)


def load_configuration(path: Path) -> Configuration:
    """Read a file, and validate every key and value.

    Raises:
        ConfigurationFileError: the file is missing, is not YAML, or has an invalid key or value;
            it names the line.
    """
    first_line: dict[str, int] = {}
    configuration = Configuration()
    for setting in _settings(_parse(path), path):
        key, line = setting.key, setting.line
        if key in first_line:
            reason = f"key {key!r} is set twice, first in line {first_line[key]}"
            raise ConfigurationFileError(str(path), line, reason)
        first_line[key] = line
        try:
            check_option(key, setting.value)
        except ConfigurationError as error:
            raise ConfigurationFileError(str(path), line, str(error)) from error
        configuration.set_string(key, setting.value)
    return configuration


@dataclass(frozen=True, slots=True)
class _Setting:
    key: str
    value: str
    line: int


def _parse(path: Path) -> yaml.Node | None:
    try:
        # Composed, not loaded, so that "off" and "1:30" stay strings, and lines are known.
        root: yaml.Node | None = yaml.compose(
            path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader
        )
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationFileError(str(path), None, reason) from error
    except UnicodeDecodeError as error:
        raise ConfigurationFileError(str(path), None, "it is not UTF-8") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = error.problem or error.context or "it is not YAML"
        line = None if mark is None else mark.line + 1
        raise ConfigurationFileError(str(path), line, reason) from error
    except yaml.YAMLError as error:
        raise ConfigurationFileError(str(path), None, str(error)) from error
    return root


def _settings(root: yaml.Node | None, path: Path) -> Iterator[_Setting]:
    if root is None or _is_null(root):
        return
    if not isinstance(root, yaml.MappingNode):
        raise ConfigurationFileError(
            str(path), _line(root), "it must consist of lines of the form key: value"
        )
    yield from _flatten(root, "", (), path)


def _flatten(
    node: yaml.MappingNode, prefix: str, parents: tuple[yaml.Node, ...], path: Path
) -> Iterator[_Setting]:
    if node in parents:
        reason = f"key {prefix.rstrip('.')!r} contains itself"
        raise ConfigurationFileError(str(path), _line(node), reason)
    for name, value in node.value:
        if not isinstance(name, yaml.ScalarNode):
            raise ConfigurationFileError(str(path), _line(name), "a key must be plain text")
        key = f"{prefix}{name.value}"
        if isinstance(value, yaml.MappingNode):
            yield from _flatten(value, f"{key}.", (*parents, node), path)
        else:
            yield _Setting(key, _text(key, value, path), _line(name))


def _text(key: str, node: yaml.Node, path: Path) -> str:
    if isinstance(node, yaml.ScalarNode) and not _is_null(node):
        return str(node.value)
    if isinstance(node, yaml.SequenceNode) and all(
        isinstance(item, yaml.ScalarNode) for item in node.value
    ):
        return ";".join(str(item.value) for item in node.value)
    reason = f"key {key!r} needs a value, or a list of plain values"
    raise ConfigurationFileError(str(path), _line(node), reason)


def _is_null(node: yaml.Node) -> bool:
    return str(node.tag).endswith(":null")


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
