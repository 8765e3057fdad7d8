"""What would be done anew for every client or every collection, done once for a run of tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from whitenoise.middleware import WhiteNoiseMiddleware  # type: ignore[import-untyped]  # it has none

_find_files = WhiteNoiseMiddleware.add_files_from_finders
_found: dict[tuple[str, int | None], dict[str, Any]] = {}


def find_static_files_once() -> None:
    """Let the first client of a run look through all folders for static files, and no other.

    Each test client is a site of its own, which would look for them all before its first request.
    """
    WhiteNoiseMiddleware.add_files_from_finders = _take_found


def _take_found(site: Any) -> None:
    asked = (site.static_prefix, site.max_age)
    if asked not in _found:
        known, site.files = site.files, {}
        _find_files(site)
        _found[asked], site.files = site.files, known
    site.files.update(_found[asked])


@contextmanager
def all_kept() -> Iterator[None]:
    """Take all tests and modules that are found meanwhile for permanent.

    The collector would walk them again and again, and more of them each time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
