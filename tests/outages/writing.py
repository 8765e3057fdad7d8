"""Consumers who never give up: each write has a key, and is repeated until it is answered."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx

from marketplace.sdk.client import Client
from tests.journeys.installation import until

REPEATED = {429, 502, 503, 504}
"""Answers after which the documents tell a client to ask again with the same key."""
PAUSE_SECONDS = 0.1
REPEAT_SECONDS_MAX = 1.0


@dataclass(slots=True)
class Placed:
    """A bid that was acknowledged."""

    id: str
    key: str
    cancelled: bool = False


@dataclass(slots=True)
class Writer:
    """Places bids that nothing can serve, and cancels every second one, until it is stopped.

    connect: opens a client of the site. region: one that no other writer asks for.
    wrong: answers that no client could have made sense of.
    """

    connect: Callable[[], httpx.Client]
    token: str
    region: str
    placed: list[Placed] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    repeated: dict[str, int] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to write, in a thread."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Let it finish what it has begun."""
        self._stop.set()
        assert self._thread is not None
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"no answer in {seconds} s: {self.repeated}"

    @property
    def acknowledged(self) -> int:
        """Return how many bids were acknowledged so far."""
        return len(self.placed)

    def has_gone_on(self, count: int) -> bool:
        """Tell if more than so many bids were acknowledged, or something is wrong."""
        return self.acknowledged > count or bool(self.wrong)

    def _run(self) -> None:
        with self.connect() as api:
            while not self._stop.is_set() and not self.wrong:
                key = str(uuid4())
                if (told := self._until_answered(api, "POST", "/api/v1/bids", key)) is None:
                    return
                placed = Placed(str(told["id"]), key)
                self.placed.append(placed)
                if len(self.placed) % 2:
                    path = f"/api/v1/bids/{placed.id}"
                    after = int(told["position"])
                    cancelled = self._until_answered(api, "DELETE", path, str(uuid4()), after)
                    placed.cancelled = cancelled is not None
                self._stop.wait(PAUSE_SECONDS)

    def _until_answered(
        self, api: httpx.Client, method: str, path: str, key: str, after: int = 0
    ) -> dict[str, Any] | None:
        """Ask until there is an answer. after: what the answer has to know of."""
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Idempotency-Key": key,
            "Offpeak-After": str(after),
        }
        body = self._bid() if method == "POST" else None
        pause = threading.Event()
        while True:
            try:
                answer = api.request(method, path, json=body, headers=headers)
            except httpx.TransportError as lost:
                self._count(type(lost).__name__)
            else:
                if answer.is_success:
                    told: dict[str, Any] = answer.json() if answer.content else {}
                    return told
                if not self._may_repeat(answer):
                    self.wrong.append(f"{method} {path}: {answer.status_code} {answer.text[:500]}")
                    return None
                self._count(str(answer.status_code))
            pause.wait(REPEAT_SECONDS_MAX)

    def _may_repeat(self, answer: httpx.Response) -> bool:
        if answer.status_code in REPEATED:
            if answer.headers.get("Content-Type") == "application/problem+json":
                return "Retry-After" in answer.headers
            return answer.status_code != 503
        with suppress(ValueError):
            return bool(answer.json().get("code") == "still-in-progress")
        return False

    def _count(self, what: str) -> None:
        self.repeated[what] = self.repeated.get(what, 0) + 1

    def _bid(self) -> dict[str, Any]:
        return {
            "query": f"gpu=H200 region={self.region}",
            "gpus": 1,
            "duration_seconds": 600,
            "limit": "0.10",
            "service_class": "on-demand",
            "workload": {"kind": "other", "command": []},
        }


def shown_to(api: Client, writer: Writer) -> list[dict[str, Any]]:
    """Return the bids once the rows, which follow the record, tell of what was cancelled."""

    def asked() -> list[dict[str, Any]]:
        bids = list(api.all("bids"))
        over = {each["id"] for each in bids if each["state"] == "cancelled"}
        return bids if {each.id for each in writer.placed if each.cancelled} <= over else []

    return until(asked, why="a cancellation that was acknowledged is not shown")


def check_nothing_lost_or_doubled(writers: list[Writer], bids: list[dict[str, Any]]) -> None:
    """Hold what the market has to what it acknowledged."""
    for writer in writers:
        assert writer.wrong == []
        shown = {each["id"]: each for each in bids if writer.region in each["query"]}
        told = [each.id for each in writer.placed]
        assert len(set(told)) == len(told), "one id for two keys"
        assert sorted(shown) == sorted(told), (
            f"lost: {sorted(set(told) - set(shown))}, "
            f"doubled: {sorted(set(shown) - set(told))} of {len(told)}"
        )
        for each in writer.placed:
            assert (shown[each.id]["state"] == "cancelled") == each.cancelled, shown[each.id]
