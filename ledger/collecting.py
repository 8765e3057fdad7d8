"""The cycle collector, where it costs more than it finds."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS_BETWEEN = 20_000
"""New objects after which the youngest are looked at."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Switch the collector off while much is made that stays: it would walk all of it repeatedly.

    Half of a rebuild's time, and four fifths of reading a snapshot, went there. What is made must
    hold no cycles that are let go of meanwhile.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def settle() -> None:
    """Take everything made so far for permanent: the collector does not look at it again."""
    gc.freeze()


def let_go() -> None:
    """Give back the memory of something large that is not needed any more.

    A whole collection also empties the lists of free objects, which keep much of it from going.
    """
    gc.collect()


def seldom() -> None:
    """Let the collector come seldom, and not for what was imported: for a process that serves.

    A page of events makes tens of thousands of objects, nearly all of which go by themselves. At
    Python's pace, each seven hundred, an eighth of the time of policies went into looking at them.
    """
    gc.freeze()
    gc.set_threshold(OBJECTS_BETWEEN, *gc.get_threshold()[1:])
