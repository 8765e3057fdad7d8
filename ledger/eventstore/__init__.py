"""Where facts are kept. `port` says what a store is; its siblings are the stores.

`config.wiring` installs one store per process; everyone else asks `default_store()`.
"""

from __future__ import annotations

from collections.abc import Callable

from ledger.eventstore.port import EventStore

_build: Callable[[], EventStore] | None = None
_installed: EventStore | None = None


def install(build: Callable[[], EventStore]) -> None:
    """Make what `build` returns the store this process writes to, built when first asked for.

    Late, because a client of a remote store must be made after the process has forked.
    """
    global _build, _installed
    _build, _installed = build, None


def default_store() -> EventStore:
    """Return the installed store."""
    global _installed
    if _installed is None:
        assert _build is not None, "config.apps.SiteConfig.ready() installs the store"
        _installed = _build()
    return _installed
