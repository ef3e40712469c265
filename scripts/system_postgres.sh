#!/bin/sh
# Print the directory of the system's oldest PostgreSQL >= 15, whose bin/ has the server; nothing if none.
# The oldest: the embedded one is the newest already.
set -eu

for directory in /usr/lib/postgresql/* /usr/pgsql-*; do
    version=${directory##*[/-]}
    if [ -x "$directory/bin/initdb" ] && [ "$version" -ge 15 ] 2>/dev/null; then
        echo "$version $directory"
    fi
done | sort -n | head -n 1 | cut -d' ' -f2-
