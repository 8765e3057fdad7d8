"""`offpeak modules`: what work may import where the client is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.marketplace.cli.pretending import Market, offpeak

PROGRAM = """
import offpeak.checkpoint, offpeak.heartbeat
offpeak.heartbeat.heartbeat()
print(offpeak.heartbeat.__file__)
"""


def test_work_finds_them_where_no_client_is_installed(market: Market, tmp_path: Path) -> None:
    folder = tmp_path / "train"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)

    done = offpeak(market, "modules", str(folder))
    ran = subprocess.run(
        [sys.executable, "-S", "train.py"],
        cwd=folder,
        env={"OFFPEAK_LEASE_ID": "a-lease", "OFFPEAK_CHECKPOINT": str(folder / ".checkpoint")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, market.heard) == (0, []), done.stderr
    assert ran.stdout.strip() == str(folder / "offpeak" / "heartbeat.py"), ran.stderr
    assert (folder / ".heartbeat").is_file()


def test_once_more_brings_them_up_to_date(market: Market, tmp_path: Path) -> None:
    offpeak(market, "modules", str(tmp_path))
    stale = tmp_path / "offpeak" / "checkpoint.py"
    whole = stale.read_bytes()
    stale.write_text("of another version")

    assert offpeak(market, "modules", str(tmp_path)).returncode == 0
    assert stale.read_bytes() == whole


def test_a_folder_that_is_none_is_a_matter_of_usage(market: Market, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("nowhere", "file"):
        done = offpeak(market, "modules", str(tmp_path / name))

        assert done.returncode == 2 and f"{name} is no folder" in done.stderr.replace("\n", "")
