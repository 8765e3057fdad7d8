"""Compile all kernels once for all processes of a run: minutes, where they are new or changed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import django
from django.conf import settings

from marketplace import kernels
from marketplace.domain.kernels import jit


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
    jit.compile_into(kernels.folder(settings.KERNELS))


@contextmanager
def as_python() -> Iterator[None]:
    """Run kernels as Python meanwhile, as an engine does until they are compiled."""
    made = {id(each.made): each for each in jit._kernels.values() if each.made is not None}
    held = [
        (vars(module), name, kernel)
        for of, module in list(sys.modules.items())
        if of.startswith(jit.PROGRAM)
        for name, kernel in list(vars(module).items())
        if id(kernel) in made
    ]
    folder, jit._folder = jit._folder, None
    try:
        for names, name, kernel in held:
            each = made[id(kernel)]
            names[name] = each.until_then or each.plain
        yield
    finally:
        jit._folder = folder
        for names, name, kernel in held:
            names[name] = kernel


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    for name in sys.argv[1:]:
        kernels.compile_part(settings.KERNELS, name)
