"""A wrong value in the environment stops the start and names its variable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from config.env import DEMO_DEFAULTS, Env, read_env, variable_of

ROOT = Path(__file__).resolve().parents[2]


def test_nothing_set_gives_the_defaults() -> None:
    assert read_env({"PATH": "/bin", "HOME": "/root"}) == Env()


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("PORT", "eighty"),
        ("PORT", "-1"),
        ("PORT", "8000.0"),
        ("PORT", ""),
        ("PORT", "\N{SUPERSCRIPT TWO}"),
        ("PORT", "70000"),
        ("OFFPEAK_DEBUG", "yes"),
        ("OFFPEAK_DEMO", "true"),
        ("OFFPEAK_FEE_PPM", "1000001"),
        ("OFFPEAK_ROUND_SECONDS", "0"),
        ("OFFPEAK_USAGE_WINDOW_SECONDS", "7"),
        ("OFFPEAK_CURRENCY", "dollars"),
        ("OFFPEAK_BURST_CLOUD", "moon"),
        ("OFFPEAK_BURST_BUDGET", "much"),
        ("EVENTSTORE_URL", "sqlite"),
        ("DATABASE_URL", "mysql://localhost/x"),
        ("REDIS_URL", "localhost:6379"),
    ],
)
def test_a_wrong_value_names_its_variable(variable: str, text: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        read_env({variable: text})

    assert str(stopped.value).startswith(f"{variable} must be "), stopped.value


def test_the_site_does_not_start_with_a_wrong_value() -> None:
    ended = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=ROOT,
        env={**os.environ, "PORT": "eighty"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode != 0
    assert ended.stderr.strip() == "PORT must be a whole number, not 'eighty'"


def test_a_demo_is_quick_unless_told_otherwise() -> None:
    env = read_env({"OFFPEAK_DEMO": "1", "OFFPEAK_ROUND_SECONDS": "45"})

    assert env.demo
    assert env.round_seconds == 45
    assert env.usage_window_seconds == DEMO_DEFAULTS["usage_window_seconds"]


def test_every_field_has_a_variable_of_its_own() -> None:
    names = [variable_of(name) for name in Env.__dataclass_fields__]

    assert len(names) == len(set(names))
