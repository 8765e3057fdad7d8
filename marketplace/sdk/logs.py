"""`offpeak logs`: what a lease's work prints, now and as it comes."""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Annotated, NamedTuple
from uuid import UUID

import typer

from .client import PASSING, Client, Problem, Unreachable
from .printing import NotPrinted, Printer
from .session import Session, session_of
from .whole_numbers import whole

FAILURES_MAX = 5
FOLLOWED_FAILURES_MAX = 120
"""In a row: whoever follows waits for a market that is started again, some minutes."""
PAUSE_SECONDS_MAX = 5.0
CHUNKS_WAITING_MAX = 64


class Stream(StrEnum):
    """What a process prints to."""

    STDOUT = "stdout"
    STDERR = "stderr"


class Chunk(NamedTuple):
    """Some of a log. offset: after it. dropped: bytes that are missing before what follows.

    end: what was said of the log at its end, and no text any more.
    """

    stream: str
    offset: int
    text: str = ""
    dropped: int = 0
    end: dict[str, object] | None = None


def follow(
    client: Client,
    lease: str,
    stream: str,
    *,
    offset: int = 0,
    host: str | None = None,
    to_the_end: bool = True,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[Chunk]:
    """Yield a log from an offset on, and go on by itself where an answer breaks off.

    to_the_end: wait for what is still to come; else end with what is there.
    Raises: Problem, Unreachable.
    """
    failures = 0
    while True:
        path = f"leases/{lease}/logs/{stream}"
        asked = {"offset": offset, "host": host, "follow": str(to_the_end).lower()}
        try:
            for event in client.events(path, **asked):
                failures = 0
                chunk = _chunk(stream, event.name, event.data, offset=int(event.id or offset))
                offset = chunk.offset
                yield chunk
                if chunk.end is not None:
                    return
        except (Unreachable, Problem) as lost:
            failures += 1
            passes = isinstance(lost, Unreachable) or lost.status in PASSING
            if not passes or failures >= (FOLLOWED_FAILURES_MAX if to_the_end else FAILURES_MAX):
                raise
            sleep(min(PAUSE_SECONDS_MAX, 0.25 * 2 ** min(failures, 10)))


def _chunk(stream: str, name: str, data: str, *, offset: int) -> Chunk:
    told = json.loads(data)
    if name == "end":
        return Chunk(stream, offset, end=told)
    if name == "dropped":
        return Chunk(stream, offset, dropped=told)
    return Chunk(stream, offset, told)


def logs(
    context: typer.Context,
    lease: UUID,
    wait: Annotated[
        bool, typer.Option("-f", "--follow", help="go on until the work and its log end")
    ] = False,
    stream: Annotated[Stream | None, typer.Option(help="one of the two; else both")] = None,
    offset: Annotated[
        int, typer.Option(parser=whole(0), help="of one stream: the first byte wanted")
    ] = 0,
    host: Annotated[UUID | None, typer.Option(help="of several: whose; else the first's")] = None,
) -> None:
    """Print what a lease's work prints: its standard output and its standard error to ours."""
    session = session_of(context)
    if offset and stream is None:
        raise typer.BadParameter("an offset is of one stream: say --stream too")
    streams = list(Stream) if stream is None else [stream]
    show(
        session,
        str(lease),
        streams,
        offset=offset,
        host=None if host is None else str(host),
        to_the_end=wait,
    )


def show(
    session: Session,
    lease: str,
    streams: Sequence[Stream] = tuple(Stream),
    *,
    offset: int = 0,
    host: str | None = None,
    to_the_end: bool = True,
) -> None:
    """Print logs of a lease as `follow` yields them, one beside the other.

    Raises: Problem, Unreachable, NotPrinted.
    """
    ends = []
    chunks = _together(
        lambda each: follow(
            session.client, lease, each, offset=offset, host=host, to_the_end=to_the_end
        ),
        streams,
    )
    for chunk in chunks:
        if chunk.end is not None:
            ends.append(chunk.end)
        _print(session.printer, chunk)
    if any(end["complete"] is not True and end.get("more") is not True for end in ends):
        session.printer.say("The log may lack its end: its host has not said that this is all.")


def _together(
    read: Callable[[Stream], Iterator[Chunk]], streams: Sequence[Stream]
) -> Iterator[Chunk]:
    """Yield what comes of several streams as it comes, until each has ended."""
    waiting: queue.Queue[Chunk | Exception | None] = queue.Queue(CHUNKS_WAITING_MAX)

    def run(stream: Stream) -> None:
        try:
            for chunk in read(stream):
                waiting.put(chunk)
            waiting.put(None)
        except Exception as failure:
            waiting.put(failure)

    for stream in streams:
        threading.Thread(target=run, args=[stream], daemon=True).start()
    left = len(streams)
    while left:
        found = waiting.get()
        if isinstance(found, Exception):
            raise found
        if found is None:
            left -= 1
        else:
            yield found


def _print(printer: Printer, chunk: Chunk) -> None:
    """Write what the work printed as it is, or a line of JSON for programs.

    Raises: NotPrinted.
    """
    if printer.as_json:
        printer.print(json.dumps({k: v for k, v in chunk._asdict().items() if v not in ("", None)}))
        return
    if chunk.dropped:
        printer.tell(f"[offpeak: {chunk.dropped} bytes of {chunk.stream} are dropped here]")
    if chunk.stream == Stream.STDOUT:
        if chunk.text:
            printer.write(chunk.text.encode())
    else:
        with suppress(OSError, ValueError):
            sys.stderr.write(chunk.text)
            sys.stderr.flush()


__all__ = ["Chunk", "NotPrinted", "follow", "logs", "show"]
