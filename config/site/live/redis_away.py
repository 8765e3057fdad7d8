"""Redis joins the sockets of several processes; while it is away they cannot be served."""

from __future__ import annotations


def is_redis_away(failure: Exception) -> bool:
    """Tell if that is what Redis' client raises when it cannot be reached.

    By name, so that an installation without Redis does not load it.
    """
    return isinstance(failure, OSError) or type(failure).__module__.startswith("redis.")
