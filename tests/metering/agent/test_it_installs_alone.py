"""`offpeak-agent` as owners get it: a wheel in an empty environment, far from the repository."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from metering.agent import VERSION
from tests.metering.agent.market import TOKEN, Market, assignment
from tests.metering.agent.works import let_through, until, work_options
from tests.wheels import Installed, installed

ROOT = Path(__file__).resolve().parents[3]
TYPED = """
from offpeak_agent.uplink import HttpUplink
uplink: HttpUplink = HttpUplink(1, "token")
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return installed(ROOT / "metering" / "agent", tmp_path_factory.mktemp("offpeak-agent"))


def test_nothing_of_the_repository_is_there(alone: Installed) -> None:
    names = ("marketplace", "metering", "ledger", "config", "django")
    code = (
        "import sys\nfrom importlib.util import find_spec\n"
        "print([name for name in sys.argv[1:] if find_spec(name)])"
    )

    assert alone.run(alone.python, "-c", code, *names).stdout == "[]\n"


OF_EXTRAS = ("offpeak_agent.access.tunnel", "offpeak_agent.access.door_shell")
"""What is only imported where the extra `access` is installed, which is not the case here."""


def test_every_module_of_it_can_be_imported(alone: Installed) -> None:
    code = (
        "import importlib, pkgutil, offpeak_agent\n"
        "for each in pkgutil.walk_packages(offpeak_agent.__path__, 'offpeak_agent.'):\n"
        f"    if each.name not in {OF_EXTRAS}: importlib.import_module(each.name)\n"
    )

    done = alone.run(alone.python, "-c", code)

    assert (done.returncode, done.stderr) == (0, "")


def test_it_says_its_version_and_its_options(alone: Installed) -> None:
    assert alone.run("offpeak-agent", "--version").stdout == f"{VERSION}\n"
    assert alone.run(alone.python, "-m", "offpeak_agent", "--version").stdout == f"{VERSION}\n"
    done = alone.run("offpeak-agent", "--help")
    assert done.returncode == 0 and "--work-users" in done.stdout


def test_it_runs_the_work_of_a_lease_and_its_keeper(alone: Installed, market: Market) -> None:
    state_dir = alone.folder / "state"
    let_through(state_dir)
    run = ["run", "--simulate", "L4:1", "--state-dir", str(state_dir), *work_options()]
    command = [str(alone.folder / "bin" / "offpeak-agent"), *run, "--server", market.url]
    market.poll_seconds = market.sample_seconds = 1
    agent = subprocess.Popen(
        command,
        cwd=alone.folder,
        env={"PATH": "/usr/bin:/bin", "OFFPEAK_AGENT_TOKEN": TOKEN},
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: market.registrations)
        (gpu,) = market.registrations[0].gpus
        now_ms = int(Path("/proc/self").stat().st_ctime * 1000)
        lease = market.assign(assignment(gpu.uuid, now_ms=now_ms, command=("/bin/true",)))
        until(lambda: "exited" in [report.what for report in market.told(lease)])
    finally:
        agent.terminate()
        agent.wait()
    assert [report.exit_code for report in market.told(lease)] == [None, 0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be refused as root")
def test_as_root_it_says_what_it_needs(alone: Installed) -> None:
    done = alone.run("offpeak-agent", "run", OFFPEAK_AGENT_TOKEN=TOKEN)

    assert done.returncode == 2 and "--work-users 300000-300031" in " ".join(done.stderr.split())


def test_it_is_typed(alone: Installed, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TYPED)
    mypy = [str(ROOT / ".venv" / "bin" / "mypy"), "--python-executable", str(alone.python)]

    done = subprocess.run(
        [*mypy, "--cache-dir", str(tmp_path / "cache"), "--config-file", "", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert 'Argument 1 to "HttpUplink" has incompatible type "int"; expected "str"' in done.stdout
    assert "py.typed" not in done.stdout, done.stdout


def test_the_wheel_holds_the_package_and_nothing_else(alone: Installed) -> None:
    (wheel,) = (alone.folder.parent / "wheels").glob("*.whl")

    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}

    assert tops == {"offpeak_agent", f"offpeak_agent-{VERSION}.dist-info"}


def test_the_wheel_names_its_licence_and_carries_its_text(alone: Installed) -> None:
    assert alone.licence() == ("Apache-2.0", (ROOT / "LICENSE").read_text())
