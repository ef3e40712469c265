#!/bin/sh
# Print "VERSION PATH" of each Python >= 3.11 that really runs and can make virtual environments,
# one per minor version, newest first. Candidates are executed: a version manager's shim may be on
# the PATH and still refuse to run.
set -eu

candidates() {
    for name in python3.14 python3.13 python3.12 python3.11 python3 python; do
        command -v "$name" || true
    done
    root=$(pyenv_root)
    if [ -n "$root" ]; then
        for directory in "$root"/versions/*/bin; do
            echo "$directory/python"
        done
    fi
}

# Where pyenv keeps its versions. Of a pyenv that is not on the PATH the shims may be: they stand beside.
pyenv_root() {
    if [ -n "${PYENV_ROOT:-}" ]; then
        echo "$PYENV_ROOT"
    elif command -v pyenv >/dev/null 2>&1; then
        pyenv root
    else
        case $(command -v python3 || command -v python || true) in
            */shims/*) echo "$(dirname "$(dirname "$(command -v python3 || command -v python)")")" ;;
        esac
    fi
}

probe='
import ensurepip, ssl, sys, venv
if sys.version_info >= (3, 11) and sys.version_info.releaselevel == "final":
    print("%d.%d" % sys.version_info[:2], sys.executable)
'

candidates | while IFS= read -r candidate; do
    "$candidate" -c "$probe" </dev/null 2>/dev/null || true
done | sort -s -t. -k2,2nr | awk '!seen[$1]++'
