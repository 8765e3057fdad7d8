"""Which way a host that is alone in a clearing is looked at."""

from __future__ import annotations

from marketplace.domain.one_host import OneHost


def fast_host() -> type[OneHost]:
    """Return the kind of `OneHost` that is compiled, where kernels are: it decides the same."""
    # Late: what is compiled is said after this is imported, and most processes have no use for it.
    from marketplace.domain.optimum.compiling import COMPILES

    if not COMPILES:
        return OneHost
    from marketplace.domain.fast_host import FastHost

    return FastHost
