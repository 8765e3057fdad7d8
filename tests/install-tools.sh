#!/bin/sh
# Bring what tests need beside Python, where apt is at hand and we may use it: Chromium for pages,
# a C compiler for the NVML test library, nginx and systemd-analyze for the files under deploy/,
# bubblewrap, slirp4netns, podman (with skopeo and gpg, which sign images) and a Slurm cluster of
# one node, whose QOS need a database, for leased work; hledger, which checks exported books.
# Elsewhere what is installed is used, and a test without its tool says why it is skipped.
set -eu
missing=""
need() { # NAMES PACKAGES: install the packages unless one of the commands is there
  for name in $1; do command -v "$name" >/dev/null 2>&1 && return 0; done
  missing="$missing $2"
}
PATH="$PATH:/usr/sbin:/sbin"
need "chromium chromium-browser google-chrome" "chromium fonts-dejavu-core"
need "gcc cc" "gcc libc6-dev"
need "nginx" "nginx-light"
need "systemd-analyze" "systemd"
need "bwrap" "bubblewrap"
need "slirp4netns" "slirp4netns"
need "iptables" "iptables"
need "podman" "podman runc conmon catatonit uidmap"
need "skopeo" "skopeo"
need "gpg" "gpg gpg-agent"
need "slurmctld" "slurmctld"
need "slurmd" "slurmd slurm-client"
need "slurmdbd" "slurmdbd slurm-wlm-mysql-plugin"
need "munged" "munge"
need "hledger" "hledger"
need "mariadbd" "mariadb-server-core mariadb-client-core"
[ -n "$missing" ] || exit 0
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
  # Nothing that is installed for tests may begin to serve by itself, as Debian's packages do.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
  fi
  # A fresh machine has no package lists; one that is busy with its own updates is waited for.
  apt-get -o DPkg::Lock::Timeout=300 update -qq
  # shellcheck disable=SC2086  # a list of packages
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq \
    --no-install-recommends $missing >/dev/null
else
  echo "not installed, since apt or root is missing:$missing" >&2
fi
