"""The market's API with what every caller needs: tokens, safe repeats, pages, waiting."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import httpx

from .problems import Problem, Unreachable, problem_of

TIMEOUT_SECONDS = 30.0
ATTEMPTS_MAX = 4
PAUSE_SECONDS_MAX = 20.0
PASSING = frozenset({429, 502, 503, 504})
POLL_SECONDS = 0.5


class Client:
    """One market, as one party.

    Repeats what failed in passing (no answer, 429, 502 to 504), at most ATTEMPTS_MAX times; a
    write carries an Idempotency-Key, so that a repeat of one that did arrive does nothing twice.
    """

    def __init__(
        self,
        server: str,
        token: str = "",
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        headers = {"Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._http = httpx.Client(
            base_url=server.rstrip("/") + "/api/v1/",
            headers=headers,
            timeout=TIMEOUT_SECONDS,
            transport=transport,
        )
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._http.close()

    def get(self, path: str, **query: object) -> Any:
        """GET one thing. Raises: Problem, Unreachable."""
        return self._send("GET", path, query=query).json()

    def all(
        self, path: str, *, limit: int | None = None, **query: object
    ) -> Iterator[dict[str, Any]]:
        """Yield every entry of a list, page by page; at most `limit`."""
        given = 0
        while True:
            page = self.get(path, **query)
            for entry in page["data"]:
                if limit is not None and given >= limit:
                    return
                yield entry
                given += 1
            if not page.get("next"):
                return
            query["cursor"] = page["next"]

    def post(self, path: str, body: object = None, *, key: str | None = None) -> Any:
        """POST; `key` names the request, so that asking again does nothing twice."""
        return self._write("POST", path, body, key or str(uuid4()), None)

    def patch(self, path: str, body: object, *, if_match: str | None = None) -> Any:
        """PATCH, if wanted only the version that was seen."""
        return self._write("PATCH", path, body, str(uuid4()), if_match)

    def delete(self, path: str, body: object = None) -> Any:
        """DELETE."""
        return self._write("DELETE", path, body, str(uuid4()), None)

    def download(self, path: str, **query: object) -> Iterator[bytes]:
        """Yield a file in parts. Raises: Problem, Unreachable."""
        try:
            with self._http.stream("GET", path, params=_plain(query)) as response:
                if response.is_error:
                    response.read()
                    raise problem_of(response)
                yield from response.iter_bytes()
        except httpx.TransportError as lost:
            raise Unreachable(f"{self._http.base_url}: {lost}") from lost

    def wait(
        self,
        path: str,
        until: Callable[[Any], bool],
        *,
        seconds: float,
        seen: Callable[[Any], object] = lambda state: None,
        absent_at_first: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> Any:
        """Read `path` again and again until `until` holds of it; return it as last seen.

        absent_at_first: it is known to have happened, but may not be shown yet.
        Raises: TimeoutError after `seconds`.
        """
        deadline = clock() + seconds
        while True:
            try:
                state = self.get(path)
            except Problem as problem:
                if problem.status != 404 or not absent_at_first:
                    raise
            else:
                absent_at_first = False
                seen(state)
                if until(state):
                    return state
            if clock() >= deadline:
                raise TimeoutError(path)
            self._sleep(POLL_SECONDS)

    def _write(self, method: str, path: str, body: object, key: str, if_match: str | None) -> Any:
        headers = {"Idempotency-Key": key}
        if if_match is not None:
            headers["If-Match"] = if_match
        response = self._send(method, path, body=body, headers=headers)
        return response.json() if response.content else None

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, object] | None = None,
        body: object = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                response = self._http.request(
                    method, path, params=_plain(query or {}), json=body, headers=headers
                )
            except httpx.TransportError as lost:
                if attempt == ATTEMPTS_MAX:
                    raise Unreachable(f"{self._http.base_url}: {lost}") from lost
                self._sleep(_pause(attempt, None))
                continue
            if response.status_code in PASSING and attempt < ATTEMPTS_MAX:
                self._sleep(_pause(attempt, response.headers.get("Retry-After")))
                continue
            if response.is_error:
                raise problem_of(response)
            return response
        raise AssertionError("the loop returns or raises")


def _plain(query: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in query.items() if value is not None}


def _pause(attempt: int, retry_after: str | None) -> float:
    if retry_after is not None and retry_after.isdigit():
        return min(PAUSE_SECONDS_MAX, float(retry_after))
    longest: float = min(PAUSE_SECONDS_MAX, 0.2 * 2**attempt)
    return longest * (0.5 + random.random() / 2)


__all__ = ["Client", "Problem", "Unreachable"]
