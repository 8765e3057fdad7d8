"""Where blobs are. `port` says what a storage does; its siblings are the storages.

`config.wiring` installs one per process; everyone else asks `default_storage()`.
"""

from __future__ import annotations

from collections.abc import Callable

from marketplace.storage.port import Storage

_build: Callable[[], Storage] | None = None
_installed: Storage | None = None


def install(build: Callable[[], Storage]) -> None:
    """Make what `build` returns the storage of this process, built when first asked for."""
    global _build, _installed
    _build, _installed = build, None


def default_storage() -> Storage:
    """Return the installed storage."""
    global _installed
    if _installed is None:
        assert _build is not None, "config.apps.SiteConfig.ready() installs the storage"
        _installed = _build()
    return _installed
