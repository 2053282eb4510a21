#!/bin/sh
# The development environment: packages of the distribution where we are root on a Debian, then a virtual
# environment with everything in it. Called by make, which says PYTHON and PACKAGES.
set -eu
venv=$1

missing=""
if command -v dpkg-query >/dev/null 2>&1; then
    for package in $PACKAGES; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
    done
fi
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ]; then
        echo "installing:$missing"
        apt-get update -q
        # shellcheck disable=SC2086
        DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
    else
        echo "not installed, and only root can:$missing" >&2
        echo "  sudo apt-get install$missing" >&2
    fi
fi

[ -x "$venv/bin/python" ] || "$PYTHON" -m venv "$venv"
"$venv/bin/python" -m pip install -q --disable-pip-version-check --upgrade pip
extras=dev
# pystemd has no wheels: it is compiled, which needs systemd's headers.
if pkg-config --exists libsystemd 2>/dev/null; then extras=dev,systemd; fi
"$venv/bin/python" -m pip install -q --disable-pip-version-check -e ".[$extras]"
touch "$venv/.ready"
