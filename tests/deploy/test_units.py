"""The units, the settings and the container files that we ship say what the product understands."""

from __future__ import annotations

import configparser
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from django.conf import settings

from config.env import read_env
from config.wiring import LOOP_GROUPS, loops
from tests.deploy.proxy import ROOT, tool

DEPLOY = ROOT / "deploy"
UNITS = sorted([*DEPLOY.glob("*.service"), *DEPLOY.glob("*.target")])
COMMANDS = {"web", "run", "migrate", "bootstrap"}


def settings_in(text: str) -> dict[str, str]:
    """Return what an env file sets; what is commented out counts as set."""
    lines = re.findall(r"^#?([A-Z][A-Z0-9_]+)=(.*)$", text, re.MULTILINE)
    return dict(lines)


def words(text: str) -> list[list[str]]:
    return [found.split() for found in re.findall(r"manage\.py\"?,? (.+)$", text, re.MULTILINE)]


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_understands_every_unit(unit: Path, tmp_path: Path) -> None:
    """The programs are not installed here: each unit is given some that are."""
    analyze = tool("systemd-analyze")
    for each in UNITS:
        text = re.sub(r"^(Exec\w+=[+-]?)/\S+", r"\1/bin/true", each.read_text(), flags=re.MULTILINE)
        text = re.sub(r"^(User|Group)=.*$", r"\1=root", text, flags=re.MULTILINE)
        text = text.replace("Documentation=https://gpu.example", "Documentation=https://x.example")
        (tmp_path / each.name).write_text(text)
    name = unit.name.replace("@.", "@engine.")

    checked = subprocess.run(
        [analyze, "verify", "--man=no", str(tmp_path / name)],
        capture_output=True,
        text=True,
        check=False,
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:/lib/systemd/system"},
    )

    told = [line for line in checked.stderr.splitlines() if str(tmp_path) in line or name in line]
    assert checked.returncode == 0, checked.stderr
    assert told == [], told


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_what_there_is_and_not_as_root(unit: Path) -> None:
    text = unit.read_text()
    for command, *names in words(text):
        assert command in COMMANDS
        assert set(names) <= {"%i", "--verbosity", "0"}
    if "manage.py" in text:
        assert "User=offpeak" in text and "EnvironmentFile=/etc/offpeak/offpeak.env" in text


def test_the_target_starts_every_group_of_loops() -> None:
    read = configparser.RawConfigParser(strict=False)
    text = (DEPLOY / "offpeak.target").read_text()
    read.read_string(text)

    assert set(re.findall(r"offpeak-loops@([\w-]+)\.service", text)) == set(LOOP_GROUPS)


def test_the_example_of_settings_can_be_read() -> None:
    given = settings_in((DEPLOY / "offpeak.env.example").read_text())

    env = read_env(given)

    assert env.base_url == "https://gpu.example"
    assert env.oidc_issuer_url and env.redis_url
    assert {"DATABASE_URL", "OFFPEAK_SECRET_KEY", "OFFPEAK_HOME"} <= given.keys()


def test_the_compose_file_starts_the_same_processes() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]

    commands = [each.get("command") or [""] for each in services.values()]
    groups = {command[1] for command in commands if command[0] == "run"}
    assert groups == set(LOOP_GROUPS)
    assert services["web"]["command"] == ["web"]
    for service in services.values():
        needed = service.get("depends_on", {})
        assert set(needed) <= services.keys()


def test_the_image_holds_every_app_and_nothing_else_of_ours() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    copied = set(re.findall(r"^COPY (?!--from)(\S+) ", text, re.MULTILINE))

    assert copied == {
        "requirements.txt", "manage.py",
        "ledger", "listings", "marketplace", "metering", "bursting", "config",
    }  # fmt: skip
    assert all((ROOT / name).exists() for name in copied)
    assert "USER offpeak" in text


def test_groups_name_loops_that_there_are() -> None:
    known = {loop.name for loop in loops(settings.ENV)} | {"bursting", "homecoming", "reaper"}

    assert {name for group in LOOP_GROUPS.values() for name in group} <= known
