"""Fetches the source of leased work: a commit of a git repository, or one file by its SHA-256.

This is the program that runs for it inside the work's own confinement and network, as the work's
account, before the work. It is told what to fetch by a file, and says how it went in one line of
JSON. What comes out of a repository is read object by object and written here: nothing is checked
out, so no hook, filter, attribute or submodule of it is ever run or followed.

With the standard library alone, and isolated: bubblewrap hands it in as a file.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import http.client
import json
import os
import re
import resource
import shutil
import signal
import ssl
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, Any, NoReturn
from urllib.parse import unquote, urlsplit

ORDER = Path("/run/offpeak/order.json")
CA = Path("/run/offpeak/ca.pem")
SECRETS = Path("/run/secrets")
WORK = Path("/lease/work")
STORE = Path("/tmp/.offpeak-git")  # the lease's own
SAID_LENGTH_MAX = 300
SHOWN_MAX = 20
COPIED_BYTES = 1 << 20
SPARE_BYTES = 64 << 20
POINTER = b"version https://git-lfs.github.com/spec/v1\n"
POINTER_BYTES_MAX = 1_024
QUIET_SECONDS_MAX = 60
ALONE_USER = "x-access-token"
"""The name that goes with a token, of which servers read the token alone."""
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
TOO_LARGE = "it is larger than the {} that this host fetches for work"
CLASH = "two of its entries have one path, or a volume of the work lies there: {!r}"
QUIETLY = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0",
    "-c", "maintenance.auto=false", "-c", "fetch.recurseSubmodules=false",
    "-c", "submodule.recurse=false", "-c", "protocol.ext.allow=never",
    "-c", "http.lowSpeedLimit=1", "-c", f"http.lowSpeedTime={QUIET_SECONDS_MAX}",
)  # fmt: skip

REASONS = (
    ("find remote ref", "it has no branch, tag or commit {ref}"),
    ("not our ref", "it has no branch, tag or commit {ref}"),
    ("could not read username", "its server knows no such repository, or asks who we are"),
    ("authentication failed", "its server does not take the secret that the bid names for it"),
    ("could not resolve host", "{host} has no address that this host lets work reach"),
    ("failed to connect", "{host} is not reached from here: work may not connect to it"),
    ("couldn't connect", "{host} is not reached from here: work may not connect to it"),
    ("not allowed", "its server sends on to an address that is not fetched from"),
    ("file too large", TOO_LARGE),
    (f"died of signal {int(signal.SIGXFSZ)}", TOO_LARGE),
    ("no space left", "it finds no room: the host's disk is full"),
)
"""What is told, by what git says."""


class Unfetched(Exception):
    """The source cannot be had; the text says why."""


class Git:
    """git on a store of our own, that asks nobody and speaks to one server alone."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.host = urlsplit(order["url"]).netloc

    def command(self, *words: str) -> list[str]:
        """Return a command line."""
        more = ["-c", f"http.sslCAInfo={CA}"] if CA.exists() else []
        if self.order["secret"]:
            asks = f"!{sys.executable} -I -S {__file__} credential"
            more += ["-c", f"credential.helper={asks}"]
        return ["git", *QUIETLY, *more, *words]

    def environment(self) -> dict[str, str]:
        """Return what git finds around it: nothing that somebody else set up."""
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": "/nonexistent",
            "LC_ALL": "C",
            "GIT_DIR": str(STORE),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": "https",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_LFS_SKIP_SMUDGE": "1",
        }

    def run(self, *words: str) -> bytes:
        """Run git; return what it printed. Raises: Unfetched."""
        done = subprocess.run(
            self.command(*words),
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            if -done.returncode == signal.SIGXFSZ:
                raise Unfetched(TOO_LARGE.format(_size(self.order["bytes_max"])))
            raise Unfetched(self._why(done.stderr.decode(errors="replace")))
        return done.stdout

    def _why(self, said: str) -> str:
        low = said.lower()
        for words, reason in REASONS:
            if words in low:
                large = _size(self.order["bytes_max"])
                return reason.format(large, ref=self.order["ref"], host=self.host)
        lines = said.splitlines()
        found = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines[-1:]
        return f"git: {(found or ['it failed'])[0].partition(': ')[2]}"


def fetch_commit(order: dict[str, Any]) -> dict[str, Any]:
    """Fetch a commit, and write its files where the work starts. Raises: Unfetched, OSError."""
    git = Git(order)
    shutil.rmtree(STORE, ignore_errors=True)
    try:
        git.run("init", "--quiet", "--bare", "--template=", str(STORE))
        commit = _commit(git)
        left_out: list[str] = []
        tree = f"{commit}:{order['folder']}" if order["folder"] else commit
        entries = _entries(git, tree, left_out)
        _write(git, entries, left_out)
    finally:
        shutil.rmtree(STORE, ignore_errors=True)
    return {"commit": commit, "left_out": left_out}


def _commit(git: Git) -> str:
    """Fetch what is wanted; return the id of its commit. Raises: Unfetched."""
    url, ref = git.order["url"], git.order["ref"]
    one = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-commit-graph")
    is_commit = COMMIT.fullmatch(ref) is not None
    name = "FETCH_HEAD"
    try:
        git.run(*one, "--depth=1", url, ref)
    except Unfetched:
        if not is_commit:
            raise
        # A server that gives out no commit by its id has it below a branch or a tag.
        git.run(*one, url, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        name = ref
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    try:
        commit = git.run(*words).decode().strip()
    except Unfetched:
        raise Unfetched(f"it has no branch, tag or commit {ref}") from None
    if is_commit and commit != ref:
        raise Unfetched(f"{ref} is no commit")
    return commit


class Entry:
    """One file or link of a tree."""

    def __init__(self, mode: str, name: str, size: int, path: str) -> None:
        self.mode, self.name, self.size, self.path = mode, name, size, path


def _entries(git: Git, tree: str, left_out: list[str]) -> list[Entry]:
    """Return the files and links of a tree, all of which may be written. Raises: Unfetched."""
    try:
        listed = git.run("ls-tree", "-r", "-z", "-l", "--full-tree", tree)
    except Unfetched:
        raise Unfetched(f"that commit has no folder {git.order['folder']!r}") from None
    entries: list[Entry] = []
    size = 0
    for line in filter(None, listed.split(b"\0")):
        about, _, raw = line.partition(b"\t")
        mode, kind, name, length = about.decode().split()
        path = raw.decode("utf-8", "surrogateescape")
        if kind == "commit":
            left_out.append(f"{_shown(path)}: a submodule")
        elif not is_safe(path):
            raise Unfetched(f"a path of that commit leads out of it: {_shown(path)!r}")
        else:
            entries.append(Entry(mode, name, int(length), path))
            size += int(length)
    if len(entries) > git.order["files_max"]:
        raise Unfetched(f"that commit has {len(entries)} files: too many")
    need_room(size, git.order["bytes_max"])
    return entries


def _write(git: Git, entries: list[Entry], left_out: list[str]) -> None:
    """Write files, then links: nothing is written through one. Raises: Unfetched, OSError."""
    links: list[tuple[Entry, str]] = []
    reading = subprocess.Popen(
        git.command("cat-file", "--batch"),
        env=git.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert reading.stdin is not None and reading.stdout is not None
    pointers = 0
    try:
        for entry in entries:
            reading.stdin.write(f"{entry.name}\n".encode())
            reading.stdin.flush()
            head = [entry.name.encode(), b"blob", str(entry.size).encode()]
            if reading.stdout.readline().split() != head:
                raise Unfetched("the repository is damaged")
            if entry.mode == "120000":
                to = reading.stdout.read(entry.size).decode("utf-8", "surrogateescape")
                links.append((entry, to))
            else:
                pointers += _write_file(entry, reading.stdout)
            reading.stdout.read(1)
    finally:
        reading.kill()
        reading.communicate()
    for link, to in links:
        if not stays_inside(link.path, to):
            left_out.append(f"{_shown(link.path)}: a link that leads out of the folder")
            continue
        place = WORK / link.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(to)
    if pointers:
        left_out.append(f"the content of {pointers} files, which Git LFS keeps elsewhere")


def _write_file(entry: Entry, source: IO[bytes]) -> bool:
    """Write one file; tell if it only points at what Git LFS keeps. Raises: Unfetched, OSError."""
    place = WORK / entry.path
    place.parent.mkdir(parents=True, exist_ok=True)
    runs = int(entry.mode, 8) & stat.S_IXUSR
    left, is_pointer = entry.size, False
    with open_new(place, 0o755 if runs else 0o644) as file:
        while left > 0:
            data = source.read(min(left, COPIED_BYTES))
            if not data:
                raise Unfetched("git ended too early")
            if left == entry.size <= POINTER_BYTES_MAX:
                is_pointer = data.startswith(POINTER)
            file.write(data)
            left -= len(data)
    return is_pointer


def open_new(place: Path, mode: int) -> IO[bytes]:
    """Open a file that was not there, through no link. Raises: OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(place, flags, mode), "wb")


def need_room(size: int, bytes_max: int) -> None:
    """Refuse what is too much. Raises: Unfetched."""
    if size > bytes_max:
        raise Unfetched(TOO_LARGE.format(_size(bytes_max)))
    room = shutil.disk_usage(WORK).free - SPARE_BYTES
    if size > room:
        raise Unfetched(f"it finds no room: {size} bytes to come, {max(0, room)} free")


class Redirecting(urllib.request.HTTPRedirectHandler):
    """Follows to https alone."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Return the next request. Raises: Unfetched."""
        if urlsplit(newurl).scheme != "https":
            raise Unfetched("its server sends on to an address that is not fetched from")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch_file(order: dict[str, Any]) -> dict[str, Any]:
    """Fetch one file that is what its hash says. Raises: Unfetched, OSError."""
    parts = urlsplit(order["url"])
    name = unquote(parts.path.rpartition("/")[2])
    if not is_safe(name):
        raise Unfetched(f"{name!r} is no name for a file")
    request = urllib.request.Request(order["url"])  # https alone, by its reader
    if order["secret"]:
        user, password = secret(order["secret"])
        said = f"Bearer {password}"
        if user != ALONE_USER:
            said = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        request.add_unredirected_header("Authorization", said)
    context = ssl.create_default_context(cafile=str(CA) if CA.exists() else None)
    asking = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=context),
        Redirecting(),
    )
    digest, most, size = hashlib.sha256(), order["bytes_max"], 0
    place = WORK / name
    try:
        with asking.open(request, timeout=QUIET_SECONDS_MAX) as answer:
            need_room(int(answer.headers.get("Content-Length") or 0), most)
            with open_new(place, 0o644) as file:
                while data := answer.read(COPIED_BYTES):
                    size += len(data)
                    if size > most:
                        raise Unfetched(TOO_LARGE.format(_size(most)))
                    digest.update(data)
                    file.write(data)
    except urllib.error.HTTPError as error:
        raise Unfetched(f"its server answers {error.code}") from None
    except urllib.error.URLError as error:
        why = f"{parts.netloc} is not reached from here: {error.reason}"
        raise Unfetched(why) from None
    except (TimeoutError, ssl.SSLError, ConnectionError, http.client.HTTPException) as error:
        raise Unfetched(f"{parts.netloc} broke off: {error}") from None
    if digest.hexdigest() != order["sha256"]:
        place.unlink()
        raise Unfetched(f"it is not what its hash says: its SHA-256 is {digest.hexdigest()}")
    return {"commit": "", "left_out": []}


def secret(name: str) -> tuple[str, str]:
    """Return the name and the password of a secret: `name:password`, or a token alone."""
    text = (SECRETS / name).read_text().strip()
    user, colon, password = text.partition(":")
    return (user, password) if colon else (ALONE_USER, text)


def give_credential(order: dict[str, Any]) -> None:
    """Answer git as a credential helper: for the bid's own host, and for no other."""
    asked = dict(line.strip().partition("=")[::2] for line in sys.stdin)
    own = urlsplit(order["url"]).netloc
    if sys.argv[-1] == "get" and (asked.get("protocol"), asked.get("host")) == ("https", own):
        user, password = secret(order["secret"])
        sys.stdout.write(f"username={user}\npassword={password}\n")


def stays_inside(path: str, to: str) -> bool:
    """Tell if a link at a path leads to a place inside the folder."""
    if not to or to.startswith("/") or "\0" in to:
        return False
    depth = path.count("/")
    for name in to.split("/"):
        depth += -1 if name == ".." else 0 if name in ("", ".") else 1
        if depth < 0:
            return False
    return True


def is_safe(path: str) -> bool:
    """Tell if a path stays inside, can be made on every host, and is no place of git's own."""
    names = path.split("/")
    if {"", ".", ".."} & set(names) or any(name.lower() in (".git", "git~1") for name in names):
        return False
    try:
        return len(path.encode()) <= 1_024 and re.search(r"[\x00-\x1f\x7f\\]", path) is None
    except UnicodeEncodeError:
        return False


def _shown(path: str) -> str:
    return path.encode("utf-8", "replace").decode("utf-8", "replace")[:120]


def _size(size: int) -> str:
    return f"{size >> 30} GiB" if size >= 1 << 30 else f"{size >> 20} MiB"


def _say(said: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def _fail(why: str) -> NoReturn:
    text = "".join(each for each in why if each.isprintable())
    _say({"failed": text[:SAID_LENGTH_MAX]})
    sys.exit(1)


def main() -> None:
    """Do what the order says; as a credential helper where git asks for that."""
    order = json.loads(ORDER.read_text())
    if "credential" in sys.argv[1:]:
        give_credential(order)
        return
    os.umask(0o022)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    most = order["bytes_max"]
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )
    try:
        found = fetch_file(order) if order["sha256"] else fetch_commit(order)
    except Unfetched as unfetched:
        _fail(str(unfetched))
    except FileNotFoundError as error:
        _fail("there is no git on this host" if error.filename == "git" else str(error))
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EROFS):
            _fail(CLASH.format(str(error.filename).replace(f"{WORK}/", "")))
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            _fail("it finds no room: the host's disk is full")
        _fail(f"it could not be written: {error.strerror}")
    left_out = found["left_out"]
    if len(left_out) > SHOWN_MAX:
        left_out[SHOWN_MAX - 1 :] = [f"{len(left_out) - SHOWN_MAX + 1} more"]
    _say(found)


if __name__ == "__main__":
    main()
