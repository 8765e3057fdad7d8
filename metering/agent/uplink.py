"""The way to the server: HTTP by the standard library, one request a call.

Nothing is tried again in here, save a request that met the end of a kept connection (`kept.py`).
"""

from __future__ import annotations

import http.client
import json
import logging
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar
from urllib.parse import quote, urljoin, urlsplit
from uuid import UUID

from . import later, wire
from .kept import Answer, KeptConnections
from .strict import JSON_BYTES_MAX, Message, WireError, dump, parse
from .wire_of_tokens import (
    ENROLMENT_PATH,
    TOKEN_PATH,
    TOKEN_TAKEN_PATH,
    TokenAsked,
    TokenGiven,
    TokenTaken,
)

M = TypeVar("M", bound=Message)

log = logging.getLogger(__name__)

ANSWER_SECONDS_MAX = 15.0
BLOB_SECONDS_MAX = 60.0
"""Longest that nothing comes or goes of a blob."""
STORAGE_SECONDS_MAX = 20.0
"""The same for a storage elsewhere: where a firewall swallows what is sent, the server is near."""
THROUGH_SECONDS = 600.0
"""How long blobs go through the server after a storage elsewhere was not reached."""
THROUGH = "?through=1"
OF_STORAGE = b"<Error>"
"""What an answer of S3 has that refuses something: one without it is of somebody on the way."""
LOOPBACK = {"127.0.0.1", "::1", "localhost"}
ABOUT_US = {401, 403, 404, 405}
ABOUT_THE_MESSAGE = {400, 413, 422}
CODE_LENGTH_MAX = 100
PROBLEM_BYTES_MAX = 65_536
BEYOND_MAX = 1_000
"""So many things of a newer market are logged, each once."""
ENROL = "this host's token does not work: ask its owner for a code, then offpeak-agent enrol"


class Unreachable(Exception):
    """The server did not answer, or not as agreed; the same request may succeed later."""


class Refused(Exception):
    """The server understood and said no. Sending the same again gives the same answer.

    Only the market itself says so, by the code of a problem; what a proxy before it answers, or a
    conflict that passes, is as good as no answer.
    sentence: what a person is told of it, without what only programs read. place, reason: where
    in the message the fault is, and which, where that was said.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        code: str = "",
        sentence: str = "",
        place: str = "",
        reason: str = "",
    ) -> None:
        self.status = status
        self.code = code
        self.place, self.reason = place, reason
        self.sentence = sentence or f"the server answered {status}"
        mend = f" ({ENROL})" if status == 401 else ""
        super().__init__(f"{status}: {detail}{mend}")

    @property
    def is_about_us(self) -> bool:
        """Return whether the token or the host was refused, not the content of this message."""
        return self.status in ABOUT_US


class BlobRefused(Exception):
    """The storage did not give or take a blob. code: of a problem of the market, else empty."""

    def __init__(self, status: int, code: str = "") -> None:
        self.status = status
        self.code = code
        super().__init__(f"the storage answered {status} {code}".rstrip())


class BlobUnreachable(BlobRefused):
    """A storage elsewhere is not reached from this host: a new link leads through the server."""

    def __init__(self, trouble: str) -> None:
        super().__init__(0)
        self.args = (f"the storage is not reached from this host: {trouble}",)


class Uplink(Protocol):
    """The calls an agent makes. Each raises Unreachable or Refused."""

    def register(self, registration: wire.Registration) -> wire.Registered:
        """Tell the server what this host has."""
        ...

    def assignments(self) -> wire.Assignments:
        """Ask what should run here."""
        ...

    def report(self, reports: Mapping[str, Any]) -> wire.ReportsAccepted:
        """Send a ReportBatch, given as JSON."""
        ...

    def send(self, samples: Mapping[str, Any]) -> wire.Acknowledged:
        """Send a SampleBatch, given as JSON."""
        ...

    def ship(self, logs: wire.LogBatch) -> wire.LogsTaken:
        """Send what work printed."""
        ...

    def secrets(self, asked: wire.SecretsAsked) -> wire.SecretsSealed:
        """Ask for the secrets of a lease's work, for one attempt."""
        ...


class HttpUplink:
    """The server at `base_url`.

    token: or what tells it as it is now. ca_file: certificates to trust instead of the system's.
    scheme: of what proves who this is.
    Raises: ValueError when the token would travel unencrypted beyond this machine.
    """

    def __init__(
        self,
        base_url: str,
        token: str | Callable[[], str],
        *,
        ca_file: Path | None = None,
        allow_plain_http: bool = False,
        answer_seconds_max: float = ANSWER_SECONDS_MAX,
        scheme: str = "Bearer",
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the server must be an http or https address, not {base_url!r}")
        if parts.scheme == "http" and parts.hostname not in LOOPBACK and not allow_plain_http:
            raise ValueError(
                "over plain http everybody on the way can read the token: "
                "use https, or say --allow-plain-http"
            )
        first = token if isinstance(token, str) else token()
        if not first or not first.isascii() or not first.isprintable() or " " in first:
            raise ValueError("the token must be one line of printable text")
        self._base_url = base_url.rstrip("/")
        self._token = token
        self._scheme = scheme
        self._seconds = answer_seconds_max
        self._beyond: set[str] = set()
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        context = None
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
            handlers.append(urllib.request.HTTPSHandler(context=context))
        if parts.hostname in LOOPBACK:
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)
        self._kept: KeptConnections | None = None
        if parts.hostname in LOOPBACK or not _is_behind_proxy(parts.scheme, parts.netloc):
            self._kept = KeptConnections(base_url, seconds=answer_seconds_max, context=context)
        # A storage that is not the server's own may have another's certificate.
        everyone = ssl.create_default_context()
        if ca_file is not None:
            everyone.load_verify_locations(cafile=str(ca_file))
        handlers = [each for each in handlers if not isinstance(each, urllib.request.HTTPSHandler)]
        own = urllib.request.HTTPSHandler(context=everyone)
        self._storage = urllib.request.build_opener(*handlers, own)
        self._through_until = 0.0

    def register(self, registration: wire.Registration) -> wire.Registered:
        return self._call("PUT", wire.HOST_PATH, wire.Registered, registration.to_json())

    def assignments(self) -> wire.Assignments:
        answer, beyond = self._asked_for("GET", wire.ASSIGNMENTS_PATH, wire.Assignments)
        return replace(answer, unread=later.unread(beyond))

    def report(self, reports: Mapping[str, Any]) -> wire.ReportsAccepted:
        return self._call("POST", wire.REPORTS_PATH, wire.ReportsAccepted, reports)

    def send(self, samples: Mapping[str, Any]) -> wire.Acknowledged:
        return self._call("POST", wire.SAMPLES_PATH, wire.Acknowledged, samples)

    def ship(self, logs: wire.LogBatch) -> wire.LogsTaken:
        return self._call("POST", wire.LOGS_PATH, wire.LogsTaken, logs.to_json())

    def secrets(self, asked: wire.SecretsAsked) -> wire.SecretsSealed:
        # Handed out once for an attempt: a second asking would be another's.
        path = wire.SECRETS_PATH
        return self._call("POST", path, wire.SecretsSealed, asked.to_json(), again=False)

    def enrol(self, asked: TokenAsked) -> TokenGiven:
        """Exchange a code, which this was made with in place of a token, for the host's token."""
        return self._call("POST", ENROLMENT_PATH, TokenGiven, asked.to_json())

    def rotate(self, asked: TokenAsked) -> TokenGiven:
        """Ask for a token in place of this one."""
        return self._call("POST", TOKEN_PATH, TokenGiven, asked.to_json())

    def taken(self, taken: TokenTaken) -> TokenTaken:
        """Say that the token is in use, in the place of the one before."""
        return self._call("POST", TOKEN_TAKEN_PATH, TokenTaken, taken.to_json())

    def inputs(self, lease_id: UUID, asked: wire.InputsAsked) -> wire.Inputs:
        path = wire.INPUTS_PATH.format(lease_id) + self._way
        return self._call("POST", path, wire.Inputs, asked.to_json())

    def missing(self, lease_id: UUID, asked: wire.OutputsAsked) -> wire.Links:
        path = wire.OUTPUTS_MISSING_PATH.format(lease_id) + self._way
        return self._call("POST", path, wire.Links, asked.to_json())

    def outputs(self, lease_id: UUID, sent: wire.OutputsSent) -> wire.OutputsKept:
        path = wire.OUTPUTS_PATH.format(lease_id)
        return self._call("POST", path, wire.OutputsKept, sent.to_json())

    def outputs_failed(self, lease_id: UUID, failed: wire.OutputsFailed) -> wire.OutputsFailed:
        path = wire.OUTPUTS_FAILED_PATH.format(lease_id)
        return self._call("POST", path, wire.OutputsFailed, failed.to_json())

    def volume_read(self, lease_id: UUID, name: str, asked: wire.VolumeAsked) -> wire.VolumeRead:
        path = wire.VOLUME_READ_PATH.format(lease_id, quote(name, safe="")) + self._way
        return self._call("POST", path, wire.VolumeRead, asked.to_json())

    def volume_missing(self, lease_id: UUID, name: str, asked: wire.OutputsAsked) -> wire.Links:
        path = wire.VOLUME_MISSING_PATH.format(lease_id, quote(name, safe="")) + self._way
        return self._call("POST", path, wire.Links, asked.to_json())

    def volume_sent(self, lease_id: UUID, name: str, sent: wire.VolumeSent) -> wire.VolumeKept:
        path = wire.VOLUME_VERSIONS_PATH.format(lease_id, quote(name, safe=""))
        return self._call("POST", path, wire.VolumeKept, sent.to_json())

    def volume_failed(
        self, lease_id: UUID, name: str, failed: wire.OutputsFailed
    ) -> wire.OutputsFailed:
        path = wire.VOLUME_FAILED_PATH.format(lease_id, quote(name, safe=""))
        return self._call("POST", path, wire.OutputsFailed, failed.to_json())

    def read_blob(self, link: wire.Link, size_max: int) -> bytes:
        """Read what a link leads to, at most so many bytes and one more."""
        return self._transfer("GET", link, None, size_max)

    def send_blob(self, link: wire.Link, data: bytes) -> None:
        """Send a blob to where a link leads."""
        self._transfer("PUT", link, data, 0)

    @property
    def _way(self) -> str:
        """Return what is added where links are asked for: servers of before do not look at it."""
        return THROUGH if time.monotonic() < self._through_until else ""

    def _unreached(self, trouble: object) -> BlobUnreachable:
        """Note that a storage elsewhere was not reached; links asked for from now on are others."""
        self._through_until = time.monotonic() + THROUGH_SECONDS
        return BlobUnreachable(str(trouble))

    def _transfer(self, method: str, link: wire.Link, data: bytes | None, most: int) -> bytes:
        # It says by itself who may: the token stays here.
        request = urllib.request.Request(
            urljoin(self._base_url, link.url), data=data, headers=dict(link.headers), method=method
        )
        elsewhere = bool(urlsplit(link.url).scheme)
        if urlsplit(request.full_url).scheme not in ("http", "https"):
            raise Unreachable("a link leads nowhere")
        if data is not None and not request.has_header("Content-type"):
            request.add_unredirected_header("Content-type", "application/octet-stream")
        try:
            seconds = STORAGE_SECONDS_MAX if elsewhere else BLOB_SECONDS_MAX
            with self._storage.open(request, timeout=seconds) as response:
                return bytes(response.read(most + 1)) if method == "GET" else b""
        except urllib.error.HTTPError as error:
            with error:
                body = error.read(PROBLEM_BYTES_MAX)
            if elsewhere and error.code != 404 and OF_STORAGE not in body:
                raise self._unreached(f"{method} was answered with {error.code}") from error
            raise BlobRefused(error.code, _code_of(body)) from error
        except (OSError, http.client.HTTPException) as error:
            if elsewhere:
                raise self._unreached(getattr(error, "reason", error)) from error
            raise Unreachable(f"{method} a blob: {getattr(error, 'reason', error)}") from error

    def _call(
        self,
        method: str,
        path: str,
        answer: type[M],
        body: Mapping[str, Any] | None = None,
        *,
        again: bool = True,
    ) -> M:
        """again: whether the server may get it twice; all that we send names itself."""
        return self._asked_for(method, path, answer, body, again=again)[0]

    def _asked_for(
        self,
        method: str,
        path: str,
        answer: type[M],
        body: Mapping[str, Any] | None = None,
        *,
        again: bool = True,
    ) -> tuple[M, tuple[later.Beyond, ...]]:
        token = self._token if isinstance(self._token, str) else self._token()
        headers = {"Authorization": f"{self._scheme} {token}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        data = None if body is None else dump(body)
        try:
            told = self._asked(method, path, data, headers, again=again)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{method} {path}: {getattr(error, 'reason', error)}") from error
        if not 200 <= told.status < 300:
            _raise_refusal(told)
        try:
            message, beyond = later.read(answer, parse(told.body))
        except WireError as error:
            raise Unreachable(f"{method} {path}: the answer {error}") from error
        for each in map(str, beyond):
            if each not in self._beyond and len(self._beyond) < BEYOND_MAX:
                self._beyond.add(each)
                log.warning("the market is newer than this agent: %s is not known here", each)
        return message, beyond

    def _asked(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str], *, again: bool
    ) -> Answer:
        if self._kept is not None:
            return self._kept.ask(method, path, data, headers, most=JSON_BYTES_MAX, again=again)
        request = urllib.request.Request(
            self._base_url + path, data=data, headers=headers, method=method
        )
        try:
            with self._opener.open(request, timeout=self._seconds) as response:
                return Answer(response.status, response.read(JSON_BYTES_MAX + 1))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _problem_of(error))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to wherever it points."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _is_behind_proxy(scheme: str, netloc: str) -> bool:
    """Tell if this machine's settings lead through a proxy, whose ways urllib knows."""
    found = scheme in urllib.request.getproxies()
    return found and not urllib.request.proxy_bypass(netloc)


def _problem_of(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read(PROBLEM_BYTES_MAX)
    except (OSError, http.client.HTTPException):
        return b""


def _raise_refusal(told: Answer) -> NoReturn:
    body = told.body[:PROBLEM_BYTES_MAX]
    detail = body[:2000].decode(errors="replace")
    code = _code_of(body)
    final = (
        told.status in ABOUT_US
        or (told.status in ABOUT_THE_MESSAGE and code != "")
        or (told.status == 409 and code in wire.FINAL)
    )
    if final:
        place, reason = (
            _of_problem(body, "place", "details"),
            _of_problem(body, "reason", "details"),
        )
        raise Refused(told.status, detail, code, _sentence_of(body), place, reason)
    raise Unreachable(f"the server answered {told.status}: {detail}")


def _code_of(body: bytes) -> str:
    """Return the code of a problem; empty: it is none of the market's."""
    return _of_problem(body, "code")[:CODE_LENGTH_MAX]


def _sentence_of(body: bytes) -> str:
    """Return what a problem says to a person, and what to do about it."""
    said = [_of_problem(body, name).strip() for name in ("detail", "advice")]
    return " ".join(filter(None, said))[:1000]


def _of_problem(body: bytes, name: str, within: str = "") -> str:
    try:
        problem = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if within:
        problem = problem.get(within) if isinstance(problem, dict) else None
    value = problem.get(name) if isinstance(problem, dict) else None
    return value if isinstance(value, str) else ""
