#!/bin/sh
# Have a nats-server: the system's, or else Debian's package unpacked into the cache, once.
set -eu
cache="${PENSTOCK_SERVERS_DIR:-$HOME/.cache/penstock/servers}/nats"
if found=$(PATH="$PATH:/usr/sbin" command -v nats-server); then
    echo "NATS is $found"
elif [ -x "$cache/usr/sbin/nats-server" ]; then
    echo "NATS is in $cache"
elif ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
    echo "NATS cannot be fetched: there is no apt-get (install nats-server some other way)"
    exit 1
else
    echo "fetching nats-server into $cache"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cd "$work"
    # A new machine may not know its packages yet.
    apt-get download -qq nats-server 2>/dev/null || {
        apt-get update -qq
        apt-get download -qq nats-server
    }
    dpkg -x ./*.deb unpacked
    cd - >/dev/null
    mkdir -p "$(dirname "$cache")"
    rm -rf "$cache"
    mv "$work/unpacked" "$cache"
fi
