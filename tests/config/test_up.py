"""`up` refuses in one sentence what cannot go well."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def up(home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "up"],
        cwd=ROOT,
        env={
            **os.environ,
            "OFFPEAK_HOME": str(home),
            "DJANGO_SETTINGS_MODULE": "config.settings",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def taken_port() -> object:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_a_taken_port_is_refused_and_nothing_is_started(tmp_path: Path, taken_port: int) -> None:
    ended = up(tmp_path, PORT=str(taken_port))

    assert ended.returncode == 1
    assert ended.stderr.strip() == (
        f"CommandError: Port {taken_port} of 127.0.0.1 is taken. PORT=8001 make up uses another."
    )
    assert not (tmp_path / "postgres").exists()


def test_a_second_market_on_one_home_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "up.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("1")

        ended = up(tmp_path)

    assert ended.returncode == 1
    [sentence] = ended.stderr.strip().splitlines()
    assert sentence.startswith(f"CommandError: A market is already up under {tmp_path}. ")
    assert not (tmp_path / "postgres").exists()


def test_a_demo_is_not_served_to_the_network(tmp_path: Path) -> None:
    ended = up(tmp_path, OFFPEAK_DEMO="1", OFFPEAK_HOST="0.0.0.0")

    assert ended.returncode == 1
    assert "served on loopback only" in ended.stderr
    assert not (tmp_path / "postgres").exists()
