"""Every socket of the site."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast

import structlog
from django.urls import URLPattern, path

from config.site.live.redis_away import is_redis_away
from config.site.live.relay import Hub, MarketConsumer
from config.web.lab_socket import LabConsumer
from config.wiring import projections
from ledger.outages import outage_of


class OfPages(MarketConsumer):
    """The market's socket as pages have it: of nothing that their rows do not hold yet."""

    rows = [each.name for each in projections()]
    hub = Hub(rows)


socket_urls: list[URLPattern] = [
    path("ws/market", cast(Any, OfPages.as_asgi())),
    path("ws/lab", cast(Any, LabConsumer.as_asgi())),
]

TRY_AGAIN_LATER = 1013

log = structlog.get_logger()


class Sockets:
    """An ASGI application around those of the sockets: closes one that cannot be served now.

    A page opens it again by itself. Redis or the database being away is no fault of the socket's:
    one line says it, and not a trace for each try of each page.
    """

    def __init__(self, ordinary: Callable[..., Awaitable[None]]) -> None:
        self._ordinary = ordinary

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        """Serve a socket until it ends, or what it needs is away."""
        accepted = False

        async def tell(message: Any) -> None:
            nonlocal accepted
            accepted = accepted or message["type"] == "websocket.accept"
            await send(message)

        try:
            await self._ordinary(scope, receive, tell)
        except Exception as failure:  # an outage closes it; anything else is raised
            if outage_of(failure) is None and not is_redis_away(failure):
                raise
            log.warning("socket.waiting", path=scope["path"], error=str(failure).strip())
            if not accepted:
                await send({"type": "websocket.accept"})
            await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})
