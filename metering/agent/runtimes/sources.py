"""Sources of leased work that this host fetches for it: whether it can, and how it is told to.

A source is a commit of a git repository, or one file by its SHA-256. An address that a consumer
chose is asked by nobody but the lease: in its confinement, by its network, as its account. So it
needs a network that is filtered: nothing is fetched where work has none, or the host's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ..wire import Assignment
from .confinement import TRY_SECONDS_MAX, Confinement, programs
from .egress import Way
from .users import WorkUser

FILES_MAX = 50_000
BYTES_MAX = 64 << 30
SECONDS_MAX = 3_600
"""The market waits an hour for what work needs."""
CA_VARIABLE = "SSL_CERT_FILE"
COMING = "its source is fetched"
PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
TRIED = """
import hashlib, json, ssl, subprocess, urllib.request
subprocess.check_call(["git", "--version"])
"""
_PROGRAM = Path(__file__).with_name("source_inside.py")


@dataclass(frozen=True, slots=True)
class Source:
    """What is fetched. url: https. ref, folder: of a repository; sha256: of a file; else empty.

    secret: the name of the one that its server is shown; value: what that is.
    """

    url: str
    ref: str = ""
    folder: str = ""
    sha256: str = ""
    secret: str = ""
    value: bytes = field(default=b"", repr=False)


def source_of(assignment: Assignment) -> Source | None:
    """Return what an assignment's work begins with."""
    said = assignment.source
    if said is None:
        return None
    return Source(said.url, said.ref, said.folder, said.sha256, said.secret)


@runtime_checkable
class Fetching(Protocol):
    """A runtime that may be able to fetch the source of work."""

    @property
    def fetches(self) -> bool:
        """Tell if it can."""
        ...


@dataclass(frozen=True, slots=True)
class Fetcher:
    """How this host fetches. python: an interpreter that accounts may run, in `readable` or /usr.

    bytes_max: of what one lease brings so, as of what git stores of it.
    """

    confinement: Confinement
    python: str
    readable: tuple[Path, ...] = ()
    bytes_max: int = BYTES_MAX
    seconds_max: int = SECONDS_MAX

    def order(
        self, source: Source, folder: Path, user: WorkUser | None, volumes: Sequence[str], way: Way
    ) -> dict[str, Any]:
        """Return what the keeper is told: what to fetch for the lease whose folder it is.

        user: the account of its work; None: the agent's own. volumes: paths that lie in its work's
        folder already. way: out of its network.
        """
        wanted = {
            "url": source.url,
            "ref": source.ref,
            "folder": source.folder,
            "sha256": source.sha256,
            "secret": source.secret,
            "files_max": FILES_MAX,
            "bytes_max": self.bytes_max,
        }
        arguments = self.confinement.arguments(folder, (), volumes, way)
        return {
            "confined": {
                "with": self.confinement.bwrap,
                "arguments": [*_bound(self.readable), *arguments],
                "way_out": self.confinement.way_out,
                "egress": way.order(),
            },
            "account": None if user is None else [user.uid, user.gid],
            "python": self.python,
            "files": {"fetch.py": _PROGRAM.read_text(), "order.json": json.dumps(wanted), **_ca()},
            "name": source.secret,
            "secret": b64encode(source.value).decode() if source.secret else None,
            "seconds": self.seconds_max,
        }


def find(confinement: Confinement | None, user: WorkUser | None) -> tuple[Fetcher | None, str]:
    """Return how this host fetches sources, or None and why it does not."""
    if confinement is None:
        return None, "work here is not in bubblewrap"
    if confinement.way_out is None:
        return None, "work here has no network of its own that leads out"
    own = Path(os.path.realpath(sys.executable))
    why = "there is no python3 that work may run"
    for python, readable in [*((each, ()) for each in PYTHONS), (str(own), (own.parents[1],))]:
        if os.path.exists(python) and not (why := _try(confinement, user, python, readable)):
            return Fetcher(confinement, python, readable), ""
    return None, why


def _try(
    confinement: Confinement, user: WorkUser | None, python: str, readable: Collection[Path]
) -> str:
    """Look whether git and an interpreter are there inside; return why not, or nothing."""
    if shutil.which("git", path="/usr/local/bin:/usr/bin:/bin") is None:
        return "git is not installed"
    view = [*_bound(readable), *programs(), "--proc", "/proc", "--dev", "/dev"]
    try:
        done = subprocess.run(
            [confinement.bwrap, "--unshare-all", "--unshare-user", *view, "--",
             python, "-I", "-S", "-c", TRIED],
            env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=TRY_SECONDS_MAX,
            cwd="/",
            check=False,
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else [],
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    said = done.stderr.strip().splitlines() or ["it failed"]
    return f"git and python3 do not run in bubblewrap: {said[-1]}" if done.returncode else ""


def _bound(folders: Collection[Path]) -> list[str]:
    return [word for each in folders for word in ("--ro-bind", str(each), str(each))]


def _ca() -> dict[str, str]:
    """Return the authorities that this agent trusts, where its environment names them."""
    named = os.environ.get(CA_VARIABLE)
    return {"ca.pem": Path(named).read_text()} if named else {}
