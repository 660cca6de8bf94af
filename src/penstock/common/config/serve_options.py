"""Options of `penstock serve`."""

from __future__ import annotations

from pathlib import Path

from penstock.common.config.option_kinds import HOST_PATH, STRING
from penstock.common.config_options import ConfigOption

SERVE_TOKENS_FILE: ConfigOption[Path | None] = ConfigOption(
    "penstock.serve.tokens-file",
    HOST_PATH,
    None,
    "File with the bearer tokens of `penstock serve`, one per line after `reader` or `operator`; "
    "only its owner may read it. Required to listen on other addresses than loopback ones.",
)
SERVE_ALLOWED_HOSTS: ConfigOption[str | None] = ConfigOption(
    "penstock.serve.allowed-hosts",
    STRING,
    None,
    "Names, with commas between them, under which browsers reach `penstock serve`, besides its "
    "address and the name of its host.",
)
SERVE_TLS_CERTIFICATE: ConfigOption[Path | None] = ConfigOption(
    "penstock.serve.tls-cert",
    HOST_PATH,
    None,
    "File with the certificate chain of `penstock serve`, in PEM; with it the server speaks HTTPS.",
)
SERVE_TLS_KEY: ConfigOption[Path | None] = ConfigOption(
    "penstock.serve.tls-key",
    HOST_PATH,
    None,
    "File with the private key of this certificate, in PEM, if that is not in the same file.",
)
