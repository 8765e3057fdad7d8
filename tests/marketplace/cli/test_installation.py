"""`offpeak` as users get it: a wheel in an empty environment, far from the repository."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from marketplace.sdk import VERSION
from tests.marketplace.cli.pretending import BID, ROOT, pretending
from tests.wheels import Installed, installed

PROGRAM = """
from offpeak import Client, Problem, VERSION
import sys
with Client(sys.argv[1], token="offp_user_x") as market:
    for lease in market.all("leases", state="active"):
        print(lease["id"], lease["gpu_model"], lease["ends_at"])
    try:
        market.get("nothing")
    except Problem as problem:
        print(problem.status, VERSION)
"""
TYPED = """
from offpeak import Client
market: Client = Client(1)
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return installed(ROOT / "marketplace" / "sdk", tmp_path_factory.mktemp("offpeak"))


def test_nothing_of_the_repository_is_there(alone: Installed) -> None:
    names = ("marketplace", "metering", "ledger", "config", "django")
    code = (
        "import sys\nfrom importlib.util import find_spec\n"
        "print([name for name in sys.argv[1:] if find_spec(name)])"
    )

    assert alone.run(alone.python, "-c", code, *names).stdout == "[]\n"


def test_every_module_of_it_can_be_imported(alone: Installed) -> None:
    code = (
        "import importlib, pkgutil, offpeak\n"
        "for each in pkgutil.iter_modules(offpeak.__path__):\n"
        "    importlib.import_module('offpeak.' + each.name) if each.name != '__main__' else 0\n"
    )

    done = alone.run(alone.python, "-c", code)

    assert (done.returncode, done.stderr) == (0, "")


def test_its_help_and_that_of_every_command_is_shown(alone: Installed) -> None:
    for words in ((), ("bids",), ("bids", "create"), ("quotas",), ("hosts", "add")):
        done = alone.run("offpeak", *words, "--help")
        assert (done.returncode, done.stderr) == (0, ""), words
        assert "Usage" in done.stdout
    assert alone.run("offpeak", "--version").stdout == f"{VERSION}\n"
    assert alone.run(alone.python, "-m", "offpeak", "--version").stdout == f"{VERSION}\n"


def test_the_documented_program_runs(alone: Installed) -> None:
    with pretending() as market:
        row = {"id": BID, "gpu_model": "H100", "ends_at": "2026-11-29T12:00:00Z"}
        market.answers["GET leases"] = 200, {"data": [row], "next": None}
        program = alone.folder / "program.py"
        program.write_text(PROGRAM)

        done = alone.run(alone.python, program, market.url)
        listed = alone.run("offpeak", "leases", "list", OFFPEAK_SERVER=market.url)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{BID} H100 2026-11-29T12:00:00Z\n404 {VERSION}\n"
    assert listed.returncode == 0 and BID in listed.stdout


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

    assert 'Argument 1 to "Client" has incompatible type "int"; expected "str"' in done.stdout
    assert "py.typed" not in done.stdout, done.stdout


def test_the_wheel_holds_the_package_and_nothing_else(alone: Installed) -> None:
    (wheel,) = (alone.folder.parent / "wheels").glob("*.whl")

    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}

    assert tops == {"offpeak", f"offpeak-{VERSION}.dist-info"}


def test_the_wheel_names_its_licence_and_carries_its_text(alone: Installed) -> None:
    assert alone.licence() == ("Apache-2.0", (ROOT / "LICENSE").read_text())
