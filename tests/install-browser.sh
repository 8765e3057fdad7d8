#!/bin/sh
# Bring Debian's Chromium for the page tests, and a C compiler for the NVML test library, where
# apt is at hand and we may use it. Elsewhere an existing browser is used, and without one the
# page tests say why they are skipped.
set -eu
missing=""
command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 ||
  command -v google-chrome >/dev/null 2>&1 || missing="chromium fonts-dejavu-core"
command -v gcc >/dev/null 2>&1 || command -v cc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
[ -n "$missing" ] || exit 0
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
  # A fresh machine has no package lists; one that is busy with its own updates is waited for.
  apt-get -o DPkg::Lock::Timeout=300 update -qq
  # shellcheck disable=SC2086  # a list of packages
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq \
    --no-install-recommends $missing >/dev/null
else
  echo "not installed, since apt or root is missing:$missing" >&2
fi
