"""The socket over which a page has the lab run: told how far it is, and what came of it.

The run is in a process of its own and ends with the socket: whoever leaves the page, or gives the
run up, holds nothing up any more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from channels.db import database_sync_to_async
from django.http import HttpRequest, QueryDict
from django.template.loader import render_to_string
from django.utils import timezone

from config.site.live.attendance import Attended
from config.site.pages.fairness import trial as fairness_try
from config.site.pages.lab import views as lab
from config.site.pages.lab.tables import result_of
from config.site.parts.zone import zone_of
from config.web.visitors import seat
from ledger.access.visits import actor_of
from ledger.domain.refusal import Refusal
from marketplace.lab.apart import Apart
from marketplace.lab.comparing import Comparison, Job

STEP_SECONDS = 0.25
JOBS: Mapping[str, Callable[[HttpRequest], Job]] = {
    "/lab": lab.job_of,
    "/fairness/try": fairness_try.job_of,
}
"""By the page that asks, what reads its address as a job of the lab."""


class LabConsumer(Attended):
    """One run of the lab. The page sends its path and query once; all else is ignored."""

    _task: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Accept signed-in people; close with 4401 for others, with 4429 for one too many."""
        if await self.arrived():
            await self.accept()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Begin to run what is asked, once."""
        asked = _read(text_data)
        if asked is None or self._task is not None:
            return
        self._task = asyncio.create_task(self._run(_request(self.scope, *asked)))

    async def disconnect(self, code: int) -> None:
        """Give the run up."""
        self.left()
        if self._task is not None:
            self._task.cancel()

    async def _run(self, request: HttpRequest) -> None:
        try:
            job = await database_sync_to_async(_job)(request)
            with Apart(job) as run:
                while (found := await database_sync_to_async(run.step)(STEP_SECONDS)) is None:
                    await self._say(done=run.done, steps=run.steps)
            shown = await database_sync_to_async(_shown)(request, found, job)
        except Refusal as refusal:
            shown = render_to_string("parts/refusal.html", {"refusal": refusal})
        await self._say(html=shown)
        await self.close()

    async def _say(self, **said: Any) -> None:
        await self.send(text_data=json.dumps(said))


def _read(text: str | None) -> tuple[str, str] | None:
    """Return the path and the query that a page sent; None for anything else."""
    try:
        said = json.loads(text or "")
        path, query = said["path"], said["query"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    is_asked = isinstance(path, str) and path in JOBS and isinstance(query, str)
    return (path, query) if is_asked else None


def _request(scope: Mapping[str, Any], path: str, query: str) -> HttpRequest:
    """Return the request that the page itself was, of the same visitor."""
    request = HttpRequest()
    request.method, request.path, request.GET = "GET", path, QueryDict(query)
    request.user, request.session = scope["user"], scope["session"]
    request.COOKIES = dict(scope.get("cookies", {}))
    return request


def _job(request: HttpRequest) -> Job:
    request.actor, request.actors = seat(request)  # type: ignore[attr-defined]  # as Visitors does
    return JOBS[request.path](request)


def _shown(request: HttpRequest, found: Comparison, job: Job) -> str:
    with timezone.override(zone_of(request)):
        other = "Other rules" if request.path == "/lab" else "Then"
        context = result_of(found, actor_of(request), job.currency, other)
        return render_to_string("parts/lab_result.html", context)
