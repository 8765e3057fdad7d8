"""Compile all kernels into the cache beside them: a minute, where they are new or changed."""

from __future__ import annotations

import os

import django


def compile_all() -> None:
    """Compile what rounds and the instant lane use, as an engine does before its first turn."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from marketplace.domain.optimum.warming import warm
    from marketplace.domain.rehearsing import rehearse

    warm()
    rehearse()


if __name__ == "__main__":
    compile_all()
