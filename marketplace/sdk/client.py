"""The market's API with what every caller needs: tokens, safe repeats, pages, waiting."""

from __future__ import annotations

import random
import re
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit
from uuid import uuid4

import httpx

from .problems import NotSendable, Problem, Unreachable, problem_of

TIMEOUT_SECONDS = 30.0
PATIENCE_SECONDS = 600.0
"""How long a repeat waits for its own first request, which the market still works on."""
IN_PROGRESS = "still-in-progress"
AFTER = "Offpeak-After"
"""The header that names the position of our own last write, which an answer must show."""
ATTEMPTS_MAX = 4
PAUSE_SECONDS_MAX = 20.0
PASSING = frozenset({429, 502, 503, 504})
POLL_SECONDS = 0.5
POLL_SECONDS_MIN = 0.1
"""What is waited for comes within a second or two, or it takes long: so it is asked for often at
first, and then at POLL_SECONDS."""
POLL_GROWTH = 1.2
_SECONDS = re.compile(r"[0-9]{1,6}")


@dataclass(frozen=True, slots=True)
class Done:
    """A write that the market has answered. id: of what was written, where it said so."""

    method: str
    path: str
    id: str | None


class Event(NamedTuple):
    """One event of an answer that goes on. id: after which to go on."""

    name: str
    id: str
    data: str


@dataclass(slots=True)
class Log:
    """What a client has written so far.

    under_way: the write that was sent and is not answered yet; what becomes of it is unknown.
    position: of the last one, so that what is read next shows it.
    is_refused: the last write was, so that what was asked for is not all done.
    is_told: the person has been told of all this; the rest of a command only looks on.
    """

    done: list[Done] = field(default_factory=list)
    under_way: str | None = None
    position: int | None = None
    is_refused: bool = False
    is_told: bool = False


@cache
def _trusted() -> ssl.SSLContext:
    """Return whom a connection trusts: read once, for that takes longer than a request."""
    return httpx.create_ssl_context()


class Client:
    """One market, as one party.

    Repeats what failed in passing (no answer, 429, 502 to 504), at most ATTEMPTS_MAX times; a
    write carries an Idempotency-Key, so that a repeat of one that did arrive does nothing twice.
    What it has written, it sees: every request says up to which position it must be shown.

    Raises: NotSendable for an address or a token that is none.
    """

    def __init__(
        self,
        server: str,
        token: str = "",
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        try:
            parts = urlsplit(server)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
            is_address = is_address and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address:
            raise NotSendable(f"{server!r} is no address of a market: write https://gpu.example")
        headers = {"Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            self._http = httpx.Client(
                base_url=server.rstrip("/") + "/api/v1/",
                headers=headers,
                timeout=TIMEOUT_SECONDS,
                transport=transport,
                verify=_trusted(),
            )
        except UnicodeEncodeError:
            raise NotSendable("A token has letters, digits and _ only: copy it whole.") from None
        except (httpx.InvalidURL, ValueError) as wrong:
            raise NotSendable(f"{server!r} is no address of a market: {wrong}") from None
        self._sleep = sleep
        self.log = Log()

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
        return _json(self._send("GET", path, query=query))

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

    def post(
        self,
        path: str,
        body: object = None,
        *,
        key: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> Any:
        """POST; `key` names the request, so that asking again does nothing twice."""
        return self._write(
            "POST", path, body, key or str(uuid4()), None, timeout_seconds=timeout_seconds
        )

    def ask(self, path: str, body: object, *, timeout_seconds: float = TIMEOUT_SECONDS) -> Any:
        """POST what writes nothing: a preview, a trial. May take long."""
        return self._post(path, body, str(uuid4()), None, "POST", timeout_seconds)

    def patch(self, path: str, body: object, *, if_match: str | None = None) -> Any:
        """PATCH, if wanted only the version that was seen."""
        return self._write("PATCH", path, body, str(uuid4()), if_match)

    def put(self, path: str, body: object) -> Any:
        """PUT."""
        return self._write("PUT", path, body, str(uuid4()), None)

    def delete(self, path: str, body: object = None) -> Any:
        """DELETE."""
        return self._write("DELETE", path, body, str(uuid4()), None)

    def download(self, path: str, **query: object) -> Iterator[bytes]:
        """Yield a file in parts. Raises: Problem, Unreachable."""
        try:
            params, headers = _plain(query), self._after()
            with self._http.stream("GET", path, params=params, headers=headers) as response:
                if response.is_error:
                    response.read()
                    raise problem_of(response)
                if not response.is_success:
                    raise Unreachable(_stranger(response))
                yield from response.iter_bytes()
        except httpx.TransportError as lost:
            raise Unreachable(f"{self._http.base_url}: {lost}") from lost

    def events(self, path: str, **query: object) -> Iterator[Event]:
        """Yield events as they come, until the answer ends or breaks off. Raises: Problem,
        Unreachable.
        """
        try:
            params, headers = _plain(query), {**self._after(), "Accept": "text/event-stream"}
            with self._http.stream("GET", path, params=params, headers=headers) as response:
                if response.is_error:
                    response.read()
                    raise problem_of(response)
                kind = response.headers.get("Content-Type", "")
                if not kind.startswith("text/event-stream"):
                    raise Unreachable(_stranger(response))
                yield from _events(response.iter_lines())
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
        pause = POLL_SECONDS_MIN
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
            self._sleep(pause)
            pause = min(POLL_SECONDS, pause * POLL_GROWTH)

    def _after(self) -> dict[str, str]:
        return {} if self.log.position is None else {AFTER: str(self.log.position)}

    def _write(
        self,
        method: str,
        path: str,
        body: object,
        key: str,
        if_match: str | None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> Any:
        self.log.under_way = f"{method} {path}"
        try:
            answer = self._post(path, body, key, if_match, method, timeout_seconds)
        except (Problem, NotSendable):
            self.log.under_way, self.log.is_refused = None, True
            raise
        self.log.under_way = None
        known = answer if isinstance(answer, dict) else {}
        self.log.done.append(Done(method, path, _id_of(known)))
        position = known.get("position")
        if isinstance(position, int):
            self.log.position = max(position, self.log.position or 0)
        return answer

    def _post(
        self,
        path: str,
        body: object,
        key: str,
        if_match: str | None,
        method: str,
        timeout_seconds: float,
    ) -> Any:
        headers = {"Idempotency-Key": key}
        if if_match is not None:
            headers["If-Match"] = if_match
        response = self._send(
            method, path, body=body, headers=headers, timeout_seconds=timeout_seconds
        )
        return _json(response) if response.content else None

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, object] | None = None,
        body: object = None,
        headers: dict[str, str] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> httpx.Response:
        headers = {**(headers or {}), **self._after()}
        attempt, waited = 1, 0.0
        while True:
            try:
                response = self._http.request(
                    method,
                    path,
                    params=_plain(query) if query else None,  # a path may have its own
                    json=body,
                    headers=headers,
                    timeout=timeout_seconds,
                )
            except UnicodeEncodeError as wrong:
                raise NotSendable(f"{wrong.object!r} is no text that can be sent.") from None
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as wrong:
                raise NotSendable(f"{self._http.base_url} is no address: {wrong}") from None
            except (httpx.TransportError, httpx.DecodingError) as lost:
                if attempt == ATTEMPTS_MAX:
                    raise Unreachable(f"{self._http.base_url}: {lost}") from lost
                self._sleep(_pause(attempt, None))
                attempt += 1
                continue
            if response.is_success:
                return response
            pause = _pause(attempt, response.headers.get("Retry-After"))
            problem = problem_of(response)
            if problem.code == IN_PROGRESS and attempt > 1 and waited < PATIENCE_SECONDS:
                waited += max(pause, POLL_SECONDS)
                self._sleep(max(pause, POLL_SECONDS))
            elif response.status_code in PASSING and attempt < ATTEMPTS_MAX:
                self._sleep(pause)
                attempt += 1
            elif response.is_error:
                raise problem
            else:
                raise Unreachable(_stranger(response))


def _events(lines: Iterator[str]) -> Iterator[Event]:
    """Read events; one that was cut off is none."""
    fields: dict[str, str] = {}
    for line in lines:
        if line == "" and "data" in fields:
            yield Event(fields.get("event", "message"), fields.get("id", ""), fields["data"])
        name, colon, value = line.partition(": ")
        if line == "":
            fields = {}
        elif name and colon:
            fields[name] = value


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        raise Unreachable(_stranger(response)) from None


def _stranger(response: httpx.Response) -> str:
    kind = response.headers.get("Content-Type", "nothing").partition(";")[0]
    return f"{response.url} answers {response.status_code} with {kind}, as no market does"


def _id_of(answer: dict[str, Any]) -> str | None:
    """Return the id of what was written: `id`, or the first field that names one."""
    names = ["id", *(name for name in answer if name.endswith("_id"))]
    return next((str(answer[name]) for name in names if answer.get(name)), None)


def _plain(query: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in query.items() if value is not None}


def _pause(attempt: int, retry_after: str | None) -> float:
    if retry_after is not None and _SECONDS.fullmatch(retry_after):
        return min(PAUSE_SECONDS_MAX, float(retry_after))
    longest: float = min(PAUSE_SECONDS_MAX, 0.2 * 2**attempt)
    return longest * (0.5 + random.random() / 2)


__all__ = ["Client", "NotSendable", "Problem", "Unreachable"]
