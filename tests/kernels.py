"""Compile all kernels once for all processes of a run: minutes, where they are new or changed."""

from __future__ import annotations

import os
import subprocess
import sys

import django
from django.conf import settings

from marketplace import kernels


def compile_all() -> None:
    """Compile each part in a process of its own, all at once: one is busy on one core only."""
    at = settings.KERNELS
    if kernels.are_complete(at):
        return
    words = [sys.executable, "-m", "tests.kernels"]
    compiling = [subprocess.Popen([*words, part]) for part in kernels.PARTS]
    ended = [process.wait() for process in compiling]
    assert not any(ended), f"the kernels do not compile: {ended}"
    kernels.finish(at)


def use_compiled() -> None:
    """Run kernels compiled in this process, each loaded when it is first called, or compiled."""
    from marketplace.domain.kernels.jit import compile_into

    compile_into(kernels.folder(settings.KERNELS))


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    for name in sys.argv[1:]:
        kernels.compile_part(settings.KERNELS, name)
