"""Clients of object stores, made from the settings of a `StorageUrl` and kept for reuse."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from penstock.common.config.known_options import STORAGE_PREFIX
from penstock.common.storage_url import StorageUrl
from penstock.common.text.durations import parse_duration
from penstock.errors import RuntimeSetupError, StorageSettingsError
from penstock.storage.clients.client_cache import ClientCache
from penstock.storage.clients.fork_check import ForkCheck
from penstock.storage.clients.repetition import Repetition
from penstock.storage.storage_options import options_of

_CLASSES = {"s3": "S3Store", "gs": "GCSStore", "az": "AzureStore"}
_DURATIONS = {
    "connect_timeout": timedelta(seconds=5),
    "read_timeout": timedelta(seconds=30),
    # For a whole answer: a large file that is read slowly takes long.
    "timeout": timedelta(minutes=10),
    "pool_idle_timeout": None,
}
_TIMEOUTS = ("connect_timeout", "read_timeout", "timeout")
_CLIENT = frozenset(_DURATIONS) | {
    "allow_http",
    "allow_invalid_certificates",
    "http1_only",
    "http2_only",
    "pool_max_idle_per_host",
    "proxy_url",
    "proxy_excludes",
    "proxy_ca_certificate",
    "randomize_addresses",
    "root_certificate",
    "user_agent",
}
_RETRIES = {
    "retry_timeout": timedelta(seconds=60),
    "init_backoff": timedelta(milliseconds=100),
    "max_backoff": timedelta(seconds=5),
}
_UNLIMITED = 10_000
"""Repetitions are limited by their time only."""
_ENDPOINTS = ("endpoint", "aws_endpoint_url_s3", "base_url")
_ENDPOINT_VARIABLES = {"s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")}


@dataclass(frozen=True)
class Timeouts:
    """How many seconds a request may take, for what is sent without the client's library."""

    connect: float
    read: float
    """Without a byte."""
    answer: float
    """Until the end of the answer."""


@dataclass(frozen=True)
class ObjectStoreClient:
    """A client of one bucket."""

    library: Any
    """The module `obstore`."""
    store: Any
    repetition: Repetition
    timeouts: Timeouts
    settings: Mapping[str, str]
    """By the names that the client uses; may hold credentials."""


_forks = ForkCheck()


def client_of(url: StorageUrl) -> ObjectStoreClient:
    """Return the client for a bucket, which is shared by all storages with the same settings.

    Raises:
        RuntimeSetupError: obstore is not installed.
        StorageSettingsError: a setting is unknown, or has a value that cannot be used.
    """
    return _clients.get(url)


def check_fork(url: StorageUrl) -> None:
    """Raise a RuntimeError in a process that must not use object stores."""
    _forks.before_use(url)


def _make(url: StorageUrl) -> ObjectStoreClient:
    library = _library(url.scheme)
    config = options_of(url.scheme, url.options)
    settings = dict(config)
    retries = {
        name: _duration(url, name, config.pop(name, None), default)
        for name, default in _RETRIES.items()
    }
    given = {name: config.pop(name) for name in sorted(_CLIENT & config.keys())}
    client: dict[str, object] = dict(given)
    durations = {
        name: _duration(url, name, given.get(name), default) for name, default in _DURATIONS.items()
    }
    client.update((name, value) for name, value in durations.items() if value is not None)
    if url.scheme == "s3":
        # There is no conditional copy: the client uploads one part, which the store copies.
        config.setdefault("copy_if_not_exists", "multipart")
    if _is_plain(url.scheme, config):
        client.setdefault("allow_http", True)
    retry_timeout, first, longest = (retries[name] or timedelta() for name in _RETRIES)
    store = _store(
        library,
        url,
        config,
        client_options=client,
        retry_config={
            "max_retries": _UNLIMITED,
            "retry_timeout": retry_timeout,
            "backoff": {"init_backoff": first, "max_backoff": longest, "base": 2},
        },
    )
    return ObjectStoreClient(
        library,
        store,
        Repetition(retry_timeout.total_seconds(), first.total_seconds(), longest.total_seconds()),
        Timeouts(*((durations[name] or timedelta()).total_seconds() for name in _TIMEOUTS)),
        settings,
    )


def _library(scheme: str) -> Any:
    try:
        importlib.import_module("obstore.store")
        return importlib.import_module("obstore")
    except ImportError as error:
        message = (
            f"{scheme}:// needs obstore on the driver and on all workers: "
            "pip install '/path/to/penstock[s3]'"
        )
        raise RuntimeSetupError(message) from error


def _store(library: Any, url: StorageUrl, config: dict[str, str], **more: object) -> Any:
    unknown = library.exceptions.UnknownConfigurationKeyError
    bucket = {"bucket", "bucket_name", "container", "container_name"} & config.keys()
    for name in sorted(bucket):
        raise StorageSettingsError(_key(url, name), "the URL names the bucket; remove the setting")
    make = getattr(library.store, _CLASSES[url.scheme])
    try:
        return make(url.authority, config=config, **more)
    except unknown as error:
        name = next((name for name in config if f"'{name}'" in str(error)), "")
        raise StorageSettingsError(_key(url, name), "unknown; correct or remove it") from error
    except (library.exceptions.BaseError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise StorageSettingsError(_key(url, "*"), f"{reason}; correct the value") from error


def _duration(
    url: StorageUrl, name: str, value: str | None, default: timedelta | None
) -> timedelta | None:
    if value is None:
        return default
    try:
        return parse_duration(value)
    except ValueError as error:
        expected = 'needs a duration such as "500 ms" or "1 min"'
        raise StorageSettingsError(_key(url, name), f"{expected}; got {value!r}") from error


def _is_plain(scheme: str, config: Mapping[str, str]) -> bool:
    """Whether the endpoint is one without TLS, so that nothing else needs to allow that."""
    given = [config[name] for name in _ENDPOINTS if name in config]
    found = given or [os.environ.get(name, "") for name in _ENDPOINT_VARIABLES.get(scheme, ())]
    return any(endpoint.startswith("http://") for endpoint in found)


def _key(url: StorageUrl, name: str) -> str:
    """Return a setting's key as the user has written it."""
    prefix = f"{url.scheme}."
    written = (key for key in url.options if key.startswith(prefix))
    same = (key for key in written if key.removeprefix(prefix).replace("-", "_") == name)
    return STORAGE_PREFIX + next(same, prefix + name)


_clients: ClientCache[ObjectStoreClient] = ClientCache(_make)
