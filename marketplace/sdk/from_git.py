"""A commit of a git repository as a folder to send: fetched here, by this machine's own git.

What comes out of the repository is read object by object and written by this program. Nothing is
checked out, so no hook, filter, submodule or attribute of a repository ever runs or is followed
here, and no path of it leads out of the folder.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import SplitResult, urlsplit

from . import parcel
from .problems import Problem
from .spoken import NotUnderstood

PREFIX = "git+"
LOOPBACK = {"127.0.0.1", "::1", "localhost"}
FILES_MAX = 50_000
BYTES_MAX = 64 * 2**30
"""A commit with more is no work's inputs."""
POINTER = b"version https://git-lfs.github.com/spec/v1\n"
POINTER_BYTES_MAX = 1_024
SAID_LENGTH_MAX = 300
COPIED_BYTES = 1 << 20

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+@-]{0,199}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
OWN = ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_SSL_CAINFO", "GIT_CONFIG_GLOBAL")
"""How this person's git proves itself; nothing else that it was told by its environment."""
QUIETLY = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0",
    "-c", "maintenance.auto=false", "-c", "fetch.recurseSubmodules=false",
    "-c", "submodule.recurse=false", "-c", "protocol.ext.allow=never",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for. ref: a branch, a tag or a whole commit id; path: of it, empty for all."""

    url: str
    ref: str
    path: str


@dataclass(slots=True)
class Fetched:
    """What came, and from where. left_out: what of it did not come, and why."""

    root: Path
    origin: str
    left_out: list[tuple[str, str]] = field(default_factory=list)


def read(said: str) -> Wanted:
    """Read `git+https://host/owner/repo@ref#folder`. Without a ref: what the server calls HEAD.

    Raises: NotUnderstood.
    """
    parts = urlsplit(said.removeprefix(PREFIX))
    if parts.scheme not in ("https", "ssh") and not _is_plain_here(parts):
        raise NotUnderstood(
            f"{_without_secrets(parts)} is no repository that can be fetched: "
            "write git+https://host/owner/repo@ref, or git+ssh://git@host/owner/repo@ref."
        )
    if parts.password or (parts.username and parts.scheme != "ssh"):
        raise NotUnderstood(
            "An address with a password or a token in it is seen by whoever sees the command: "
            "leave it out, and let git know it (git credential, or an ssh key)."
        )
    if not parts.hostname or parts.hostname.startswith("-") or parts.query:
        raise NotUnderstood(f"{said!r} names no repository.")
    if parts.username is not None and _NAME.fullmatch(parts.username) is None:
        raise NotUnderstood(f"{parts.username!r} is no name to sign in by.")
    path, at, ref = parts.path.partition("@")
    if at and (_REF.fullmatch(ref) is None or ".." in ref):
        raise NotUnderstood(f"{ref!r} is no branch, tag or commit.")
    if not path.strip("/") or path.startswith(("/-", "/~")):
        raise NotUnderstood(f"{said!r} names no repository.")
    inside = parts.fragment.strip("/")
    if inside and not is_safe(inside):
        raise NotUnderstood(f"{inside!r} is no folder of a repository.")
    return Wanted(f"{parts.scheme}://{parts.netloc}{path}", ref or "HEAD", inside)


def fetch(wanted: Wanted, into: Path) -> Fetched:
    """Fetch a commit into `into`, an empty folder; return what came of it.

    Raises: Problem.
    """
    store, root = into / "git", into / "folder"
    root.mkdir()
    _git(store, "init", "--quiet", "--bare", "--template=", str(store))
    commit = _fetch(store, wanted)
    found = Fetched(root, _origin(wanted, commit))
    tree = f"{commit}:{wanted.path}" if wanted.path else commit
    entries = _entries(store, tree, found, wanted)
    _write(store, root, entries, found)
    shutil.rmtree(store, ignore_errors=True)
    return found


def _is_plain_here(parts: SplitResult) -> bool:
    return parts.scheme == "http" and parts.hostname in LOOPBACK


def _without_secrets(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"[:SAID_LENGTH_MAX]


def _origin(wanted: Wanted, commit: str) -> str:
    parts = urlsplit(wanted.url)
    inside = f"#{wanted.path}" if wanted.path else ""
    return f"{parts.hostname}{parts.path}@{commit}{inside}"


def _environment(speaks: str = "") -> dict[str, str]:
    """Return an environment in which git asks nobody, and speaks this way alone."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    kept |= {name: os.environ[name] for name in OWN if name in os.environ}
    return {
        **kept,
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": speaks,
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_LFS_SKIP_SMUDGE": "1",
    }


def _git(store: Path, *words: str, speaks: str = "") -> bytes:
    """Run git on our store; return what it printed. Raises: Problem."""
    try:
        done = subprocess.run(
            ["git", *QUIETLY, *words],
            env={**_environment(speaks), "GIT_DIR": str(store)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        raise _failed("git-missing", "There is no git on this machine to fetch it with.") from None
    if done.returncode:
        raise _failed("git-failed", _last_said(done.stderr))
    return done.stdout


def _fetch(store: Path, wanted: Wanted) -> str:
    """Fetch what is wanted; return the id of its commit. Raises: Problem."""
    one = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-commit-graph")
    speaks = urlsplit(wanted.url).scheme  # also where the server sends us elsewhere
    is_commit = _COMMIT.fullmatch(wanted.ref) is not None
    try:
        _git(store, *one, "--depth=1", wanted.url, wanted.ref, speaks=speaks)
        name = "FETCH_HEAD"
    except Problem:
        if not is_commit:
            raise
        # A server that gives out no commit by its id has it below a branch or a tag.
        heads = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        _git(store, *one, wanted.url, *heads, speaks=speaks)
        name = wanted.ref
    try:
        commit = _git(store, "rev-parse", "--verify", "--quiet", "--end-of-options",
                      f"{name}^{{commit}}").decode().strip()  # fmt: skip
    except Problem:
        detail = f"{wanted.ref} is no commit of any branch or tag of that repository."
        raise _failed("commit-unknown", detail) from None
    if is_commit and commit != wanted.ref:
        raise _failed("commit-unknown", f"{wanted.ref} is not a commit, but leads to {commit}.")
    return commit


@dataclass(frozen=True, slots=True)
class _Entry:
    """One file or link of a tree."""

    mode: str
    name: str
    size: int
    path: str


def _entries(store: Path, tree: str, found: Fetched, wanted: Wanted) -> list[_Entry]:
    """Return the files and links of a tree, all of which may be written. Raises: Problem."""
    try:
        listed = _git(store, "ls-tree", "-r", "-z", "-l", "--full-tree", tree)
    except Problem:
        detail = f"That commit has no folder {wanted.path!r}."
        raise _failed("folder-unknown", detail) from None
    entries, size = list[_Entry](), 0
    for line in filter(None, listed.split(b"\0")):
        about, _, raw = line.partition(b"\t")
        mode, kind, name, length = about.decode().split()
        path = raw.decode("utf-8", "surrogateescape")
        if kind == "commit":
            found.left_out.append((path, "a submodule"))
        elif not is_safe(path):
            shown = raw.decode("utf-8", "replace")[:200]
            raise _failed("path-unsafe", f"A path of that commit leads out of it: {shown!r}.")
        else:
            entries.append(_Entry(mode, name, int(length), path))
            size += int(length)
    if len(entries) > FILES_MAX or size > BYTES_MAX:
        detail = f"That commit has {len(entries)} files of {size} bytes: that is too much."
        raise _failed("folder-too-large", detail)
    return entries


def _write(store: Path, root: Path, entries: Sequence[_Entry], found: Fetched) -> None:
    """Write files, then links. Raises: Problem."""
    pointers = 0
    process = subprocess.Popen(
        ["git", *QUIETLY, "cat-file", "--batch"],
        env={**_environment(), "GIT_DIR": str(store)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    links: dict[str, str] = {}
    try:
        assert process.stdin is not None and process.stdout is not None
        for entry in entries:
            process.stdin.write(f"{entry.name}\n".encode())
            process.stdin.flush()
            if process.stdout.readline().split() != _head_of(entry):
                raise _failed("git-failed", "The repository is damaged.")
            if entry.mode == "120000":
                to = process.stdout.read(entry.size).decode("utf-8", "surrogateescape")
                links[entry.path] = to
            else:
                pointers += _write_file(root, entry, process.stdout)
            process.stdout.read(1)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as clash:
        detail = f"Two entries of that commit have one path: {clash.filename!r}."
        raise _failed("path-unsafe", detail) from None
    finally:
        process.kill()
        process.communicate()
    _make_links(root, links, found)
    if pointers:
        found.left_out.append((f"the content of {pointers} files", "kept by Git LFS elsewhere"))


def _head_of(entry: _Entry) -> list[bytes]:
    return [entry.name.encode(), b"blob", str(entry.size).encode()]


def _write_file(root: Path, entry: _Entry, source: IO[bytes]) -> bool:
    """Write one file; tell if it only points at what Git LFS keeps. Raises: OSError."""
    place = root / entry.path
    place.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    runs = int(entry.mode, 8) & stat.S_IXUSR
    left, is_pointer = entry.size, False
    with os.fdopen(os.open(place, flags, 0o755 if runs else 0o644), "wb") as file:
        while left > 0:
            data = source.read(min(left, COPIED_BYTES))
            if not data:
                raise _failed("git-failed", "git ended too early.")
            if left == entry.size <= POINTER_BYTES_MAX:
                is_pointer = data.startswith(POINTER)
            file.write(data)
            left -= len(data)
    return is_pointer


def _make_links(root: Path, links: Mapping[str, str], found: Fetched) -> None:
    """Make links last, so that nothing was written through one."""
    for path, to in links.items():
        if not parcel.stays_inside(path, to):
            found.left_out.append((path, "a link that leads out of the folder"))
            continue
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink() or place.exists():
            raise _failed("path-unsafe", f"Two entries of that commit have one path: {path!r}.")
        place.symlink_to(to)


def is_safe(path: str) -> bool:
    """Tell if a path stays inside, can be made on every host, and is no place of git's own."""
    names = path.split("/")
    return not {"", ".", ".."} & set(names) and _can_be_made(path) and not any(map(_is_gits, names))


def _is_gits(name: str) -> bool:
    return name.lower() in (".git", "git~1")


def _can_be_made(path: str) -> bool:
    try:
        return len(path.encode()) <= 1_024 and re.search(r"[\x00-\x1f\x7f\\]", path) is None
    except UnicodeEncodeError:
        return False


def _last_said(stderr: bytes) -> str:
    """Return the line in which git says why, without what a terminal would act upon."""
    lines = stderr.decode(errors="replace").splitlines()
    found = next((line for line in lines if line.startswith(("fatal:", "error:"))), "git failed")
    text = found.partition(": ")[2] or found
    return "git: " + "".join(each for each in text if each.isprintable())[:SAID_LENGTH_MAX]


def _failed(code: str, detail: str) -> Problem:
    return Problem(422, {"code": code, "detail": detail})
