"""The files under deploy/ for a GPU host: options that exist, accounts that the agent takes."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from metering.agent.__main__ import _parser
from metering.agent.configuration import arguments_of
from metering.agent.runtimes.users import read_users

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
UNIT = DEPLOY / "offpeak-agent.service"


def service() -> configparser.SectionProxy:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # systemd tells cases apart
    unit.read_string(UNIT.read_text().replace("\\\n", " "))
    return unit["Service"]


def test_the_options_are_those_of_the_agent() -> None:
    program, *options = shlex.split(service()["ExecStart"])
    assert options == ["run", "--config", "/etc/offpeak-agent.toml"]
    options[-1] = str(DEPLOY / "offpeak-agent.toml")

    given = _parser().parse_args(arguments_of(_parser(), options))

    assert Path(program).name == "offpeak-agent" and given.verb == "run"
    assert given.work_users == "300000-300031"


def test_a_restart_leaves_leased_work_alone() -> None:
    assert service()["KillMode"] == "process"
    assert service()["StateDirectoryMode"] == "0711"


def test_the_accounts_are_those_of_the_unit() -> None:
    lines = [shlex.split(line, comments=True) for line in _accounts().read_text().splitlines()]
    made = {int(line[2]): line[1] for line in lines if line}

    taken = {user.uid for user in read_users("300000-300031")}

    assert set(made) == taken
    assert all(name.startswith("offpeak") for name in made.values())


def _accounts() -> Path:
    return DEPLOY / "offpeak-agent.sysusers.conf"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_amiss(tmp_path: Path) -> None:
    text = UNIT.read_text().replace("/opt/offpeak-agent/bin/offpeak-agent", "/bin/true")
    unit = tmp_path / UNIT.name
    unit.write_text(text)

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
