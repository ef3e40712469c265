#!/bin/sh
# Make sure that what `make test-system` needs is there: looked for by its files, installed by apt
# when we are root, else named.
set -eu
PATH=$PATH:/usr/sbin:/sbin
missing=''

need() { # PACKAGE, then the programs or files one of which is enough
    package=$1
    shift
    for wanted in "$@"; do
        if command -v "$wanted" >/dev/null 2>&1 || [ -e "$wanted" ]; then
            return
        fi
    done
    missing="$missing $package"
}

look() {
    missing=''
    need chromium chromium chromium-browser google-chrome
    need pgbouncer pgbouncer
    need libfaketime /usr/lib/*/faketime/libfaketimeMT.so.1 /usr/lib/faketime/libfaketimeMT.so.1
    [ -n "$(sh scripts/system_postgres.sh)" ] || missing="$missing postgresql"
}

look
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing by apt:$missing"
    log=$(mktemp)
    # shellcheck disable=SC2086 # one word per package
    if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; } \
        >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
    fi
    rm -f "$log"
    look
fi
if [ -n "$missing" ]; then
    echo "test-system: missing:$missing" >&2
    echo "As root on Debian or Ubuntu: apt-get install$missing" >&2
    exit 1
fi
