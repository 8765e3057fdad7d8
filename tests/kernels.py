"""Compile all kernels into the cache beside them: minutes, where they are new or changed."""

from __future__ import annotations

import os
import subprocess
import sys

import django


def _small_rounds() -> None:
    from marketplace.domain.solver.warm_up import warm_small

    warm_small()


def _large_rounds() -> None:
    from marketplace.domain.solver.warm_up import warm_large

    warm_large()


def _instant_lane() -> None:
    from marketplace.domain.decisions.warm_up import rehearse

    rehearse()


PARTS = {"small": _small_rounds, "large": _large_rounds, "instant-lane": _instant_lane}
"""What an engine compiles before its first turn, in parts that share next to no kernel."""


def compile_all() -> None:
    """Compile each part in a process of its own, all at once: one is busy on one core only."""
    words = [sys.executable, "-m", "tests.kernels"]
    compiling = [subprocess.Popen([*words, part]) for part in PARTS]
    ended = [process.wait() for process in compiling]
    assert not any(ended), f"the kernels do not compile: {ended}"


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
