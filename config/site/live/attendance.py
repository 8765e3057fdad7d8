"""Who listens at the sockets of this process: a bounded number each, and only while they may.

A socket outlives the request that opened it. So those that are open are looked at again and again:
one whose session has ended, whose person was dismissed, or whose password was changed is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import structlog
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest

from ledger.models import MemberRow, Person
from ledger.outages import outage_of

SOCKETS_MAX = 20
"""Of one person in one process: as many pages as somebody has open, and some."""
LOOK_SECONDS = 5.0
NOBODY = 4401
TOO_MANY = 4429

log = structlog.get_logger()


class Attended(AsyncWebsocketConsumer):
    """A socket of somebody who is signed in. `arrived` tells if it may go on to accept."""

    listening: ClassVar[dict[Attended, Any]] = {}
    """Those that are open, by whom."""
    looking: ClassVar[asyncio.Task[None] | None] = None

    async def arrived(self) -> bool:
        """Let the socket in, or close it with a code that says why not."""
        user = self.scope.get("user")
        if user is None or not user.is_authenticated:
            await self._turn_away(NOBODY)
            return False
        if list(self.listening.values()).count(user.pk) >= SOCKETS_MAX:
            await self._turn_away(TOO_MANY)
            return False
        self.listening[self] = user.pk
        if Attended.looking is None or Attended.looking.done():
            Attended.looking = asyncio.create_task(_look_again_and_again())
        return True

    def left(self) -> None:
        """Forget the socket."""
        self.listening.pop(self, None)

    def session_key(self) -> str | None:
        """Return the session by which the person is here; None where there is none to look at."""
        session = self.scope.get("session")
        return None if session is None else session.session_key

    async def _turn_away(self, code: int) -> None:
        await self.accept()
        await self.close(code=code)


async def _look_again_and_again() -> None:
    while Attended.listening:
        await asyncio.sleep(LOOK_SECONDS)
        sockets = list(Attended.listening.items())
        keys = {key for socket, _ in sockets if (key := socket.session_key()) is not None}
        try:
            people = await database_sync_to_async(_people_of)(keys)
        except Exception as failure:
            if outage_of(failure) is None:
                raise
            continue  # nobody can be asked: pages stay as they are
        for socket, person in sockets:
            key = socket.session_key()
            if key is not None and people.get(key) != person:
                socket.left()
                await socket.close(code=NOBODY)


def _people_of(keys: set[str]) -> Mapping[str, Any]:
    """Return who is behind each session: somebody who may sign in and is a member somewhere."""
    store = import_module(settings.SESSION_ENGINE).SessionStore
    found: dict[str, Any] = {}
    for key in keys:
        request = HttpRequest()
        request.session = store(key)
        user = get_user(request)
        if isinstance(user, Person) and MemberRow.objects.filter(user_id=user.pk).exists():
            found[key] = user.pk
    return found
