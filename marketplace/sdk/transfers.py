"""Folders between here and storage: what is missing goes, and what comes is checked.

Blobs go straight to and from storage, by links that the market gives; those carry no token. Where
the storage is not the market's own and is not reached from here, they go through the market.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, Self
from urllib.parse import urljoin, urlsplit

import httpx

from . import parcel
from .client import Client
from .problems import Problem, Unreachable, problem_of

ASKED_MAX = 1_000
ASKED_BYTES_MAX = 2**30
"""Links last 15 minutes: so much is asked for at once that a slow line sends in that time."""
LINKS_MAX = 128
"""Links to read are asked for a GiB at a time, for the same reason."""
ATTEMPTS_MAX = 4
ROUNDS_MAX = 5
"""How often what is still missing is asked for anew, where links end or connections break."""
TIMEOUT_SECONDS = 60.0
STORAGE_SECONDS = 20.0
"""For a storage elsewhere: where a firewall swallows what is sent, the market is near."""
OF_STORAGE = "<Error>"
"""What an answer of S3 has that refuses something: one without it is of somebody on the way."""
PASSING = frozenset({403, 408, 429, 500, 502, 503, 504})
"""Answers after which a new link may help; 507, a full storage, is none."""


class Unreached(Unreachable):
    """A storage elsewhere is not reached from here: new links lead through the market."""


class Way:
    """How links are asked for: as the market gives them, until a storage was not reached."""

    def __init__(self) -> None:
        self._asked = ""

    def to(self, path: str) -> str:
        """Return where to ask for links."""
        return path + self._asked

    def unreached(self, trouble: object) -> Unreached:
        """Go through the market from now on. Markets of before do not look at it."""
        self._asked = "?through=1"
        return Unreached(f"The storage for files is not reached from here: {trouble}")


class Sent:
    """How much of a folder had to be sent."""

    def __init__(self) -> None:
        self.blobs = 0
        self.bytes = 0


class Transfers:
    """Sends folders to a market and fetches them, several blobs at a time."""

    def __init__(
        self,
        client: Client,
        server: str,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._client, self._server, self._sleep = client, server, sleep
        self._way = Way()
        limits = httpx.Limits(max_connections=parcel.THREADS)
        self._http = httpx.Client(timeout=TIMEOUT_SECONDS, limits=limits, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def send(self, root: Path, folder: parcel.Parcel, *, title: str = "") -> tuple[str, Sent]:
        """Send what is missing of a folder, then name it; return its id.

        Raises: parcel.FileChanged, Problem, Unreachable.
        """
        sent = self.bring("folders", root, folder)
        kept = self._client.post("folders", {"manifest": folder.name, "title": title})
        return str(kept["id"]), sent

    def bring(self, to: str, root: Path, folder: parcel.Parcel) -> Sent:
        """Send what is missing of a folder; it has no name then. to: `folders`, or of a volume.

        Raises: parcel.FileChanged, Problem, Unreachable.
        """
        sent = Sent()
        sizes = {**folder.sizes, folder.name: len(folder.manifest)}

        def read(sha256: str) -> bytes:
            if sha256 == folder.name:
                return folder.manifest
            return parcel.piece_again(root, sha256, folder.blobs[sha256])

        for some in _batches(sizes):
            self._send(to, some, read, sent)
        return sent

    def fetch(self, folder_id: str, root: Path) -> dict[str, Any]:
        """Fetch a folder into `root`; return what the market says of it.

        Raises: parcel.FolderWrong, Problem, Unreachable.
        """
        of = f"folders/{folder_id}"
        shown: dict[str, Any] = self._client.get(of)
        self.unpack(of, self.manifest(of, shown["manifest"]), root)
        return shown

    def manifest(self, of: str, name: str) -> dict[str, Any]:
        """Return the manifest of this name of a folder, or of a volume. of: its path in the API.

        Raises: parcel.FolderWrong, Problem, Unreachable.
        """
        links = _Links(self._client, of, self._way)
        return parcel.read_manifest(self._get(name, links), name)

    def unpack(self, of: str, manifest: Mapping[str, Any], root: Path) -> None:
        """Fetch what a manifest says into `root`; it may be a part of the whole.

        Raises: parcel.FolderWrong, Problem, Unreachable.
        """
        links = _Links(self._client, of, self._way)
        links.expect([sha256 for sha256, _ in manifest["blobs"]])
        parcel.unpack(root, manifest, lambda sha256: self._get(sha256, links))

    def _send(
        self, to: str, sizes: Mapping[str, int], read: Callable[[str], bytes], sent: Sent
    ) -> None:
        for attempt in range(1, ROUNDS_MAX + 1):
            links = self._client.ask(self._way.to(f"{to}/missing"), {"blobs": sizes})["links"]
            failed: list[Exception] = []

            def put(sha256: str, link: Mapping[str, Any], failed: list[Exception] = failed) -> None:
                try:
                    self._put(link, read(sha256))
                except (Problem, Unreachable) as problem:
                    if isinstance(problem, Problem) and problem.status not in PASSING:
                        raise
                    failed.append(problem)
                else:
                    sent.blobs += 1
                    sent.bytes += sizes[sha256]

            with ThreadPoolExecutor(parcel.THREADS) as threads:
                done = [threads.submit(put, *each) for each in links.items()]
                try:
                    for each in done:
                        each.result()
                except BaseException:
                    threads.shutdown(cancel_futures=True)
                    raise
            if not failed:
                return
            if attempt == ROUNDS_MAX:
                raise failed[0]
            if not any(isinstance(each, Unreached) for each in failed):
                self._sleep(0.5 * 2**attempt)

    def _put(self, link: Mapping[str, Any], data: bytes) -> None:
        self._ask("PUT", link, data)

    def _get(self, sha256: str, links: _Links) -> bytes:
        link = links.of(sha256)
        try:
            return self._ask("GET", link).content
        except Unreached:
            pass
        except Problem as problem:
            if problem.status != 403:
                raise
        return self._ask("GET", links.of(sha256, instead=link)).content

    def _ask(
        self, method: str, link: Mapping[str, Any], data: bytes | None = None
    ) -> httpx.Response:
        url = urljoin(self._server, link["url"])
        elsewhere = bool(urlsplit(link["url"]).scheme)
        seconds = STORAGE_SECONDS if elsewhere else TIMEOUT_SECONDS
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                answer = self._http.request(
                    method, url, content=data, headers=link["headers"], timeout=seconds
                )
            except httpx.TransportError as lost:
                if elsewhere:
                    raise self._way.unreached(lost) from lost
                if attempt == ATTEMPTS_MAX:
                    raise Unreachable(f"{httpx.URL(url).host}: {lost}") from lost
            else:
                if answer.is_success:
                    return answer
                if elsewhere and answer.status_code != 404 and OF_STORAGE not in answer.text:
                    raise self._way.unreached(f"{method} was answered with {answer.status_code}")
                again = answer.status_code in PASSING and answer.status_code != 403
                if not again or attempt == ATTEMPTS_MAX:
                    raise problem_of(answer)
            self._sleep(0.2 * 2**attempt)
        raise AssertionError("the last attempt returns or raises")


class _Links:
    """Where the blobs of a folder are read: asked for many at a time. For several threads."""

    def __init__(self, client: Client, of: str, way: Way) -> None:
        self._client, self._path, self._way = client, f"{of}/links", way
        self._known: dict[str, Mapping[str, Any]] = {}
        self._places: dict[str, int] = {}
        self._order: list[str] = []
        self._alone = Lock()

    def expect(self, order: list[str]) -> None:
        """Note what will be asked for, in this order, and ask for the first of it."""
        self._order = order
        self._places = {sha256: place for place, sha256 in enumerate(order)}
        if order:
            self.of(order[0])

    def of(self, sha256: str, *, instead: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Return where a blob is read; instead: of a link that does not work any more."""
        with self._alone:
            if sha256 not in self._known or self._known[sha256] is instead:
                since = self._places.get(sha256)
                some = [sha256] if since is None else self._order[since : since + LINKS_MAX]
                asked = self._way.to(self._path)
                self._known.update(self._client.ask(asked, {"blobs": some})["links"])
            return self._known[sha256]


def _batches(sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Yield blobs, so many at a time as are asked for together; in order, the manifest last."""
    held: dict[str, int] = {}
    for sha256, size in sizes.items():
        if held and (len(held) == ASKED_MAX or sum(held.values()) + size > ASKED_BYTES_MAX):
            yield held
            held = {}
        held[sha256] = size
    if held:
        yield held
