#!/bin/sh
# Have a server: the system's, or else Debian's package unpacked into the cache, once.
# Usage: fetch_debian.sh NAME PACKAGE PROGRAM, the program as a path below /.
set -eu
name=$1 package=$2 program=$3
cache="${PENSTOCK_SERVERS_DIR:-$HOME/.cache/penstock/servers}/$name"
if found=$(PATH="$PATH:/usr/sbin" command -v "${program##*/}"); then
    echo "$name is $found"
elif [ -x "$cache/$program" ]; then
    echo "$name is in $cache"
elif ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
    echo "$name cannot be fetched: there is no apt-get (install $package some other way)"
    exit 1
else
    echo "fetching $package into $cache"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cd "$work"
    # A new machine may not know its packages yet.
    apt-get download -qq "$package" 2>/dev/null || {
        apt-get update -qq
        apt-get download -qq "$package"
    }
    dpkg -x ./*.deb unpacked
    cd - >/dev/null
    mkdir -p "$(dirname "$cache")"
    rm -rf "$cache"
    mv "$work/unpacked" "$cache"
fi
