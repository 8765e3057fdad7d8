"""Who takes payments for us. `port` says what such a service does; its siblings are the services.

`config.wiring` installs one, or none: then nothing is taken by card, accounts are topped up by
hand and cost centres billed inside their organisations.
"""

from __future__ import annotations

from collections.abc import Callable

from ledger.payments.port import Payments

_build: Callable[[], Payments | None] | None = None
_installed: Payments | None = None
_built = False


def install(build: Callable[[], Payments | None]) -> None:
    """Make what `build` returns the payment service of this process, built when first asked for."""
    global _build, _installed, _built
    _build, _installed, _built = build, None, False


def default_payments() -> Payments | None:
    """Return the installed payment service; None where there is none."""
    global _installed, _built
    if not _built:
        _installed, _built = _build() if _build is not None else None, True
    return _installed
