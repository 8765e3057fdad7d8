"""What the keeper does before the work of a bid that names a source: it has that fetched.

In the confinement, the network and the account of the work itself, and by the bounds that hold for
it. It ends at the lease's deadline as the work would, and nothing of it lives on into the work.

With the standard library alone: the keeper uses it as a script (see keeper.py).
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from .confining import TRIES_MAX, Entry, Unready, handed, in_memory, nameless
    from .family import kill_all
    from .redacting import Redactor
else:
    from confining import TRIES_MAX, Entry, Unready, handed, in_memory, nameless
    from family import kill_all
    from redacting import Redactor

MARK = "source"
"""The file in the lease's folder that is there while its source is fetched."""
INSIDE = "/run/offpeak"
SAID_BYTES_MAX = 65_536
SAID_CHARS_MAX = 400
LEFT_OUT_MAX, LEFT_OUT_CHARS_MAX = 20, 200
LOOK_SECONDS = 0.2
LEAVING_SECONDS_MAX = 30.0
ENDED = "the lease ended before it was there"


class Unfetched(OSError):
    """The source cannot be had; `strerror` says why."""


def bring(
    folder: Path, order: Mapping[str, Any], *, limit: Callable[[], None], over: Callable[[], bool]
) -> dict[str, Any]:
    """Have the source of an order fetched into its work's folder; return what came of it.

    limit: bounds the process that is about to fetch. over: tells if the lease is.
    Raises: Unfetched, OSError.
    """
    about = order["source"]
    value = b64decode(about["secret"]) if about["secret"] is not None else b""
    try:
        for left in reversed(range(TRIES_MAX)):
            try:
                said = _fetch(about, value, limit, over)
                break
            except Unready as error:
                if not left:
                    raise Unfetched(0, f"its confinement was not made: {error.strerror}") from error
            finally:
                _end_all(order.get("own_user"))
    finally:
        (folder / MARK).unlink(missing_ok=True)
    return _understood(said, value)


def _fetch(
    about: Mapping[str, Any], value: bytes, limit: Callable[[], None], over: Callable[[], bool]
) -> bytes:
    """Return the line that the program inside says. Raises: Unready, Unfetched, OSError."""
    child = _begun(about, value, limit)
    try:
        return _listened(child, over, time.monotonic() + about["seconds"])
    finally:
        child.kill()
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()


def _begun(
    about: Mapping[str, Any], value: bytes, limit: Callable[[], None]
) -> subprocess.Popen[bytes]:
    """Start that program; its secret is in no file of ours by then. Raises: Unready, OSError."""
    with ExitStack() as files:
        entry = Entry(about["confined"], files)
        secrets = {about["name"]: value} if value else {}
        options, passed = handed(secrets, files)
        options += ["--dir", INSIDE]
        for name, text in about["files"].items():
            passed = (*passed, file := in_memory(text.encode(), files))
            options += ["--perms", "0444", "--ro-bind-data", str(file), f"{INSIDE}/{name}"]
        arguments = nameless([*options, *about["confined"]["arguments"]], files)
        account = about["account"]
        more: dict[str, Any] = {}
        if account is not None:
            more = {"user": account[0], "group": account[1], "extra_groups": []}
        child = subprocess.Popen(
            [about["confined"]["with"], *entry.options, "--args", str(arguments), "--",
             about["python"], "-I", "-S", f"{INSIDE}/fetch.py"],
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=(*passed, arguments, *entry.theirs),
            preexec_fn=limit,
            **more,
        )  # fmt: skip
        entry.let_in(child)
    return child


def _listened(child: subprocess.Popen[bytes], over: Callable[[], bool], until: float) -> bytes:
    assert child.stdout is not None
    said = b""
    while True:
        if over():
            raise Unfetched(0, ENDED)
        if time.monotonic() > until:
            raise Unfetched(0, "it did not come in time")
        if not select.select([child.stdout], [], [], LOOK_SECONDS)[0]:
            continue
        if not (more := os.read(child.stdout.fileno(), 4096)) or len(said) > SAID_BYTES_MAX:
            return said
        said += more


def _end_all(user: int | None) -> None:
    """Leave nothing of it for the work to meet."""
    until = time.monotonic() + LEAVING_SECONDS_MAX
    while time.monotonic() < until:
        kill_all(os.getpid(), uid=user)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)
    raise Unfetched(0, "what fetched it does not end")


def _understood(said: bytes, value: bytes) -> dict[str, Any]:
    """Read what was said; none of it is trusted. Raises: Unfetched."""
    found: Any = None
    with suppress(ValueError, RecursionError):
        found = json.loads(said)
    if not isinstance(found, dict):
        raise Unfetched(0, "what fetched it broke off")
    if "failed" in found:
        raise Unfetched(0, _clean(str(found["failed"]), value, SAID_CHARS_MAX))
    commit, left_out = found.get("commit"), found.get("left_out")
    if not isinstance(commit, str) or not re.fullmatch(r"([0-9a-f]{40}|[0-9a-f]{64})?", commit):
        raise Unfetched(0, "what fetched it names no commit")
    if not isinstance(left_out, list):
        left_out = []
    told = [_clean(str(each), value, LEFT_OUT_CHARS_MAX) for each in left_out[:LEFT_OUT_MAX]]
    return {"commit": commit, "left_out": told}


def _clean(text: str, value: bytes, length_max: int) -> str:
    hiding = Redactor([value] if value else [])
    data = hiding.feed(text.encode(errors="replace")) + hiding.end()
    shown = data.decode(errors="replace")
    return "".join(each for each in shown if each.isprintable())[:length_max]
