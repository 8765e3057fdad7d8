"""A command on EventStoreDB closes its connections while it can, and ends without a word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.esdb_protocol.process import ServerProcess

ROOT = Path(__file__).resolve().parents[2]
COMMAND = """
import django

django.setup()

from ledger.eventstore import default_store

print(default_store().head())
"""


def test_a_command_that_has_read_ends_without_a_word(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "journal")
    try:
        ended = subprocess.run(
            [sys.executable, "-c", COMMAND],
            cwd=ROOT,
            env={
                "PATH": os.environ["PATH"],
                "DJANGO_SETTINGS_MODULE": "config.settings",
                "OFFPEAK_HOME": str(tmp_path / "home"),
                "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
                "EVENTSTORE_URL": server.uri,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        server.kill()

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0\n", "")
