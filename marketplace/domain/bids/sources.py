"""What a host fetches for work before it begins: a commit of a git repository, or one file.

`git+https://host/path@ref#folder`, or `https://host/path#sha256=…`. The market reads the address
and asks it nothing: the host does, within the lease.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from ledger.domain.refusal import Invalid
from marketplace.domain.facts.values import Workload
from marketplace.domain.secrets.secret import need_name

PREFIX = "git+"
ADDRESS_LENGTH_MAX = 1_024
FOLDER_LENGTH_MAX = 512
HEAD = "HEAD"

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+@-]{0,199}")
_SHA256 = re.compile(r"sha256=([0-9a-f]{64})")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?")
_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:%/-]+")
LOCAL = ("localhost", "localhost.localdomain")


class SourceUnfit(Invalid):
    """No host can fetch that: `reason`.

    Write git+https://host/path@ref#folder, or https://host/file#sha256=… for one file.
    """


class SourceAndInputs(Invalid):
    """Work begins with a folder that was brought, or with what its host fetches.

    Leave out `inputs` or `fetch`.
    """


class SourceUnpinned(Invalid):
    """Several hosts would fetch what the name of a branch or a tag means to each of them.

    Name the whole commit id after @, or ask for GPUs of one host.
    """


@dataclass(frozen=True, slots=True)
class Source:
    """An address that was read. ref, folder: of a repository; sha256: of a file; else empty."""

    url: str
    ref: str = ""
    folder: str = ""
    sha256: str = ""

    @property
    def is_pinned(self) -> bool:
        """Tell if it is the same whenever it is fetched."""
        return bool(self.sha256) or _COMMIT.fullmatch(self.ref) is not None


def read_source(said: str) -> Source:
    """Read an address.

    Raises: SourceUnfit.
    """
    if not 0 < len(said) <= ADDRESS_LENGTH_MAX:
        raise SourceUnfit(reason=f"an address has up to {ADDRESS_LENGTH_MAX} characters")
    is_git = said.startswith(PREFIX)
    try:
        parts = urlsplit(said.removeprefix(PREFIX))
        _need_fit(parts)
    except ValueError:
        raise SourceUnfit(reason="it is no address") from None
    if is_git:
        return _repository(parts)
    found = _SHA256.fullmatch(parts.fragment)
    if found is None:
        raise SourceUnfit(reason="a file needs its hash: …#sha256= and 64 digits")
    if parts.path.endswith("/") or _is_unsafe(parts.path.rpartition("/")[2]):
        raise SourceUnfit(reason="it names no file")
    return Source(f"https://{parts.netloc}{parts.path}", sha256=found[1])


def _need_fit(parts: SplitResult) -> None:
    """Refuse what is asked in another way than https, and what would show a secret to everybody.

    Raises: SourceUnfit, ValueError.
    """
    if parts.scheme != "https":
        raise SourceUnfit(reason="hosts fetch by https alone")
    if parts.username is not None or parts.password is not None:
        raise SourceUnfit(
            reason="everybody who sees the bid would see the token in the address: keep it as a "
            "secret, and name that"
        )
    if parts.query or "?" in parts.geturl():
        raise SourceUnfit(reason="after a question mark there may be a key: leave it out")
    if _HOST.fullmatch(parts.netloc.lower()) is None or not parts.hostname:
        raise SourceUnfit(reason="it names no host")
    _ = parts.port
    host = parts.hostname
    if host in LOCAL or _leads_back(host):
        raise SourceUnfit(reason=f"{host} would be the lease itself, or its host's own affair")


def _leads_back(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_link_local or address.is_unspecified


def _repository(parts: SplitResult) -> Source:
    path, at, ref = parts.path.partition("@")
    if _PATH.fullmatch(path) is None or path.startswith(("/-", "/~")) or "/../" in f"{path}/":
        raise SourceUnfit(reason="it names no repository")
    if at and (_REF.fullmatch(ref) is None or ".." in ref):
        raise SourceUnfit(reason="what stands after @ is no branch, tag or commit")
    folder = parts.fragment.strip("/")
    if folder and (len(folder) > FOLDER_LENGTH_MAX or any(map(_is_unsafe, folder.split("/")))):
        raise SourceUnfit(reason="what stands after # is no folder of a repository")
    return Source(f"https://{parts.netloc}{path}", ref or HEAD, folder)


def _is_unsafe(name: str) -> bool:
    return name in ("", ".", "..") or not name.isprintable() or "\\" in name


def check_source(workload: Workload, *, one_host: bool) -> None:
    """Refuse a source that no host can fetch, or that is not the same on all of them.

    Raises: SourceUnfit, SourceAndInputs, SourceUnpinned, SecretNameUnfit.
    """
    if not workload.fetch:
        if workload.fetch_secret:
            raise SourceUnfit(reason="a secret is named for an address, and no address")
        return
    source = read_source(workload.fetch)
    if workload.inputs is not None:
        raise SourceAndInputs()
    if not one_host and not source.is_pinned:
        raise SourceUnpinned()
    if workload.fetch_secret:
        need_name(workload.fetch_secret)


def pinned(said: str, commit: str) -> str:
    """Return an address with the commit in place of whatever led to it."""
    if not commit or not said.startswith(PREFIX):
        return said
    source = read_source(said)
    return f"{PREFIX}{source.url}@{commit}" + (f"#{source.folder}" if source.folder else "")
