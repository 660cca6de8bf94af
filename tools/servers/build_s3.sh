#!/bin/sh
# Have versitygw, the S3 server of the tests: built with Go, once, into the cache.
set -eu
version=v1.8.0
cache="${PENSTOCK_SERVERS_DIR:-$HOME/.cache/penstock/servers}"
# The program does not know its version, so it is noted beside it.
if [ -x "$cache/versitygw" ] && [ "$(cat "$cache/versitygw.version" 2>/dev/null)" = "$version" ]; then
    echo "versitygw is in $cache"
elif ! command -v go >/dev/null; then
    echo "versitygw cannot be built: there is no go (install Go 1.25 or newer)"
    exit 1
else
    echo "building versitygw $version into $cache (84 MB, two minutes)"
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/versitygw.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    GOBIN="$work" go install "github.com/versity/versitygw/cmd/versitygw@$version"
    mv "$work/versitygw" "$cache/versitygw"
    echo "$version" >"$cache/versitygw.version"
fi
