"""Processes of ours forked from one that has read all modules and the settings of this run.

To read them takes seconds, which a test that starts and kills several would wait for each time.
"""

from __future__ import annotations

import multiprocessing
from functools import cache
from multiprocessing.context import ForkServerContext


@cache
def prepared() -> ForkServerContext:
    """Return what forks them. None of them has used the database yet, nor has their parent."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.prepared"])
    return context
