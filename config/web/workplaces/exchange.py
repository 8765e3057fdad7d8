"""One HTTP request of a browser, carried to leased work and back over a stream of its own.

Bodies pass both ways as they come: whoever is slow holds up the other side, and nobody keeps more
than a stream's window. The work never sees our cookie, and sets none beyond its own origin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import h11

from config.web.application import Receive, Scope, Send
from config.web.connections import abort_of
from config.web.workplaces.origin import Place
from config.web.workplaces.stream import WorkStream

Header = tuple[bytes, bytes]

COOKIE = "offpeak-work"
HEAD_BYTES_MAX = 64 << 10
HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer"
    b" transfer-encoding upgrade expect".split()
)
OURS_TO_SAY = frozenset(
    b"host content-length cookie origin referer forwarded x-forwarded-for x-forwarded-host"
    b" x-forwarded-proto x-forwarded-port x-real-ip".split()
)
NOT_FOR_BROWSERS = frozenset(
    b"strict-transport-security public-key-pins alt-svc nel report-to set-cookie".split()
)
"""Of answers: what would bind more than the origin. Cookies are passed on by themselves."""


class AnswerUnreadable(Exception):
    """What the work answers is no HTTP."""


async def exchange(
    scope: Scope,
    receive: Receive,
    send: Send,
    stream: WorkStream,
    place: Place,
    *,
    scheme: str,
    more: Iterable[Header] = (),
) -> None:
    """Carry a request to the work and its answer back. more: headers that the answer gets.

    Raises: AnswerUnreadable before anything was answered; later the connection is broken off.
    """
    work = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
    headers = to_work(scope["headers"], place, scheme)
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
    if lengths:
        headers.append((b"content-length", lengths[0]))
    elif chunked:
        headers.append((b"transfer-encoding", b"chunked"))
    target = scope.get("raw_path") or scope["path"].encode()
    if scope.get("query_string"):
        target += b"?" + scope["query_string"]
    try:
        asked = h11.Request(method=scope["method"], target=target, headers=headers)
        head = work.send(asked) or b""
    except h11.LocalProtocolError as wrong:
        raise AnswerUnreadable(str(wrong)) from None
    sending = asyncio.create_task(_body(work, head, receive, stream))
    answering = asyncio.create_task(_answer(work, send, stream, place, scheme, list(more)))
    try:
        await asyncio.wait({sending, answering}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done() and sending.exception() is not None:
            await asyncio.wait({answering})  # it may have answered before it took all of the body
        if answering.done() and not answering.result():
            abort_of(scope)()
    finally:
        for task in (sending, answering):
            task.cancel()
        await asyncio.gather(sending, answering, return_exceptions=True)


async def _body(work: h11.Connection, head: bytes, receive: Receive, stream: WorkStream) -> None:
    """Send a request; then wait until the browser has gone. Raises: ConnectionError."""
    await stream.write(head)
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return
        more = message.get("more_body", False)
        try:
            data = work.send(h11.Data(data=message.get("body", b""))) or b""
            if not more:
                data += work.send(h11.EndOfMessage()) or b""
        except h11.LocalProtocolError:
            raise ConnectionError("the body is not as long as was said") from None
        if data:
            await stream.write(data)
    while (await receive())["type"] == "http.request":
        pass


async def _answer(
    work: h11.Connection,
    send: Send,
    stream: WorkStream,
    place: Place,
    scheme: str,
    more: list[Header],
) -> bool:
    """Pass the answer on; return False where it broke off after it had begun."""
    begun = False
    try:
        while True:
            event = work.next_event()
            if event is h11.NEED_DATA:
                work.receive_data(await stream.read())
            elif isinstance(event, h11.Response):
                answered = from_work(list(event.headers), place, scheme) + more
                begun = True
                start = {"type": "http.response.start", "status": event.status_code}
                await send({**start, "headers": answered})
            elif isinstance(event, h11.Data):
                body = bytes(event.data)
                await send({"type": "http.response.body", "body": body, "more_body": True})
            elif isinstance(event, h11.EndOfMessage):
                await send({"type": "http.response.body", "body": b""})
                return True
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                raise h11.RemoteProtocolError("it closed before it had answered")
    except h11.RemoteProtocolError as wrong:
        if not begun:
            raise AnswerUnreadable(str(wrong)) from None
        return False


def to_work(headers: Iterable[Header], place: Place, scheme: str) -> list[Header]:
    """Return the headers of a request as the work gets them: from its own machine, as it seems.

    So a server that takes requests for localhost alone, as most do that listen there, takes them.
    """
    headers = list(headers)
    named = _named_by_connection(headers)
    own, theirs = f"{scheme}://{place.netloc}", f"http://127.0.0.1:{place.port}"
    passed = [
        (name, value)
        for name, value in headers
        if name not in HOP_BY_HOP and name not in OURS_TO_SAY and name not in named
    ]
    found = [(b"host", f"127.0.0.1:{place.port}".encode()), *passed]
    for name, value in headers:
        text = value.decode("latin-1")
        if name == b"origin" and text == own:
            found.append((name, theirs.encode()))
        elif name == b"referer" and text.startswith(f"{own}/"):
            found.append((name, (theirs + text.removeprefix(own)).encode("latin-1")))
        elif name == b"cookie" and (kept := without_ours(text)):
            found.append((name, kept.encode("latin-1")))
    found += [
        (b"x-forwarded-host", place.netloc.encode()),
        (b"x-forwarded-proto", scheme.encode()),
        (b"connection", b"close"),
    ]
    return found


def from_work(headers: Iterable[Header], place: Place, scheme: str) -> list[Header]:
    """Return the headers of an answer as the browser gets them."""
    headers = list(headers)
    named = _named_by_connection(headers)
    own, theirs = f"{scheme}://{place.netloc}", f"http://127.0.0.1:{place.port}"
    found: list[Header] = []
    for name, value in headers:
        text = value.decode("latin-1")
        if name == b"set-cookie":
            if cookie := _cookie_of_work(text):
                found.append((name, cookie.encode("latin-1")))
        elif name in HOP_BY_HOP or name in NOT_FOR_BROWSERS or name in named:
            continue
        elif name == b"location" and (text == theirs or text.startswith(f"{theirs}/")):
            found.append((name, (own + text.removeprefix(theirs)).encode("latin-1")))
        elif name == b"cache-control":
            found.append((name, _private(text).encode("latin-1")))
        else:
            found.append((name, value))
    if not any(name == b"cache-control" for name, _ in found):
        found.append((b"cache-control", b"private"))
    # Others of its site may neither frame it nor share its process.
    found += [
        (b"vary", b"Cookie"),
        (b"content-security-policy", b"frame-ancestors 'self'"),
        (b"origin-agent-cluster", b"?1"),
    ]
    return found


def without_ours(cookies: str) -> str:
    """Return a Cookie header without our own."""
    kept = [
        each
        for each in (part.strip() for part in cookies.split(";"))
        if each and not _is_ours(each.partition("=")[0])
    ]
    return "; ".join(kept)


def cookie_of(headers: Iterable[Header]) -> str:
    """Return the value of our cookie, empty where there is none."""
    for name, value in headers:
        if name == b"cookie":
            for each in value.decode("latin-1").split(";"):
                key, _, text = each.strip().partition("=")
                if _is_ours(key):
                    return text
    return ""


def _is_ours(name: str) -> bool:
    return name.strip().removeprefix("__Host-").casefold() == COOKIE


def _cookie_of_work(text: str) -> str:
    """Return a cookie for its own origin alone; empty for one that would replace ours."""
    pair, *attributes = text.split(";")
    if _is_ours(pair.partition("=")[0]):
        return ""
    kept = [each for each in attributes if each.partition("=")[0].strip().lower() != "domain"]
    return ";".join([pair, *kept])


def _private(text: str) -> str:
    """Return a Cache-Control by which nobody on the way keeps anything."""
    shared = ("public", "s-maxage", "private")
    kept = [
        each.strip()
        for each in text.split(",")
        if each.strip() and each.partition("=")[0].strip().lower() not in shared
    ]
    return ", ".join(["private", *kept])


def _named_by_connection(headers: Iterable[Header]) -> set[bytes]:
    found = set[bytes]()
    for name, value in headers:
        if name == b"connection":
            with suppress(ValueError):
                found |= {each.strip().lower() for each in value.split(b",")}
    return found
