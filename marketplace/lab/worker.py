"""The process in which the lab runs: it takes a job from its input and tells how far it is.

Each message is a pickle behind its length. It says ("told", done), asks ("behind", stream) and is
answered with what that stream held, and ends with ("answered", comparison) or ("refused", refusal).
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from ledger.domain.refusal import Refusal
from marketplace import kernels
from marketplace.lab.comparing import Job, answered

LENGTH = struct.Struct(">Q")
TOLD_SECONDS = 0.1
NICER = 5
"""The site goes before the lab."""


def send(pipe: IO[bytes], message: Any) -> None:
    """Write one message."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    pipe.write(LENGTH.pack(len(body)))
    pipe.write(body)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Read one message, of a process of one's own.

    Raises: EOFError where the other end is gone.
    """
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    (length,) = LENGTH.unpack(head)
    body = pipe.read(length)
    if len(body) < length:
        raise EOFError
    return pickle.loads(body)  # written by the process that started this one


def main(home: Path | None) -> None:
    """Do one job. home: where compiled kernels lie, if any do; to compile them takes too long."""
    # What is printed anywhere must not come between the messages.
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.nice(NICER)
    kernels.home = home
    kernels.use()

    job: Job = receive(source)
    if job.stretch.start is not None:
        job = replace(job, stretch=replace(job.stretch, behind=_behind(source, sink)))
    try:
        found = answered(job, clock=time.process_time, told=_telling(sink))
    except Refusal as refusal:
        send(sink, ("refused", refusal))
    else:
        send(sink, ("answered", found))


def _behind(source: IO[bytes], sink: IO[bytes]) -> Callable[[str], Any]:
    def read(stream: str) -> Any:
        send(sink, ("behind", stream))
        return receive(source)

    return read


def _telling(sink: IO[bytes]) -> Callable[[int], None]:
    last = 0.0

    def tell(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= TOLD_SECONDS:
            last = now
            send(sink, ("told", done))

    return tell


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else None)
