"""The agent of an ordinary user lends the network of work a filtered way out, too.

bubblewrap then makes one user namespace in another, and the work's network is of the outer one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from metering.agent.runtimes.confining import Entry
from tests.metering.agent.works import ROOT

pytestmark = ROOT
NOBODY = 65_534
ROOT_FOLDER = Path(__file__).resolve().parents[3]
BWRAP = (
    "--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/usr", "/usr",
    "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64",
    "/lib64", "--proc", "/proc", "--dev", "/dev",
)  # fmt: skip
READY = """#!/bin/sh
for each in "$@"; do case $each in
  --ready-fd=*) printf 1 > "/proc/self/fd/${each#*=}" ;;
  --userns-path=*) test -e "${each#*=}" || exit 1 ;;
  --enable-sandbox) exit 1 ;;
esac; done
"""


def as_nobody(way_out: Path, text: str) -> str:
    """Start `true` in bubblewrap as an ordinary user; return how that went.

    text: of the program that stands for slirp4netns. In an interpreter of its own: libraries that
    other tests loaded, such as gRPC, start threads in whatever this one forks, and a process with
    several cannot enter a user namespace.
    """
    way_out.write_text(text)
    way_out.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(way_out)],
        cwd=ROOT_FOLDER,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout.strip() or done.stderr


def main(way_out: Path) -> None:
    """Give up all rights, start it, and say how that went."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    print(_start(way_out))


def _start(way_out: Path) -> str:
    program = shutil.which("iptables-restore", path=f"{os.defpath}:/usr/sbin:/sbin")
    egress: dict[str, object] = {"program": program, "open": True, "allowed": []}
    with ExitStack() as files:
        entry = Entry({"way_out": str(way_out), "egress": egress}, files)
        bwrap = subprocess.Popen(
            ["bwrap", *entry.options, *BWRAP, "--", "/bin/true"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=entry.theirs,
            cwd="/",
        )
        try:
            entry.let_in(bwrap)
        except OSError as error:
            return f"{error} ({error.__context__!r})"
        return f"ended with {bwrap.wait()}"


@pytest.fixture
def script(work_folder: Path) -> Path:
    work_folder.chmod(0o755)
    return work_folder / "way-out"


def test_its_network_is_filtered_and_lent_a_way_out(script: Path) -> None:
    assert as_nobody(script, READY) == "ended with 0"


def test_work_whose_way_out_fails_is_refused_and_not_waited_for(script: Path) -> None:
    began = time.monotonic()

    said = as_nobody(script, "#!/bin/sh\nexit 1\n")

    assert "its confinement or its network could not be made" in said
    assert time.monotonic() - began < 30


if __name__ == "__main__":
    main(Path(sys.argv[1]))
