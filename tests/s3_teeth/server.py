"""A server that speaks S3: moto's, held to what the real one refuses.

moto takes a wrong signature, a link whose time is over, other bytes than the signed checksum, and a
body that is too short. In front of it all that is checked as S3 does, and trouble is scripted.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import count
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote

import boto3
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

SECRET = "secret-of-the-test"
ACCOUNTS = count(200_000_000_001)


class _Silent(MotoRequestHandler):
    def log_request(self, *_args: Any, **_kwargs: Any) -> None:
        pass


class S3Teeth:
    """An empty bucket on a free port of 127.0.0.1, served from `start` until `stop`.

    trouble: statuses that the next requests are answered with, instead of being looked at.
    later: how far the server's clock is ahead.
    lets_pages_in: whether pages of other sites may send and read here (CORS). A bucket lets nobody
    in until its owner says so.
    """

    def __init__(self) -> None:
        self.trouble: list[str] = []
        self.later = timedelta()
        self.lets_pages_in = False
        self.asked: list[str] = []
        self.key_id = str(next(ACCOUNTS))
        self.bucket = f"offpeak-test-{self.key_id}"  # moto has one name once, for all accounts
        self._lock = threading.Lock()
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server(
            "127.0.0.1", 0, self._answer, threaded=True, request_handler=_Silent
        )
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> None:
        """Serve, and make the bucket."""
        Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        client = boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=self.key_id,
            aws_secret_access_key=SECRET,
        )
        client.create_bucket(Bucket=self.bucket)

    def stop(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, env: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        method, length = str(env["REQUEST_METHOD"]), int(env.get("CONTENT_LENGTH") or 0)
        body = env["wsgi.input"].read(length)
        with self._lock:
            self.asked.append(f"{method} {env['PATH_INFO']}")
            status = self.trouble.pop(0) if self.trouble else ""
        start = self._for_pages(env, start)
        if method == "OPTIONS":
            if not self.lets_pages_in:
                return _refuse(start, "403 Forbidden", "AccessForbidden")
            start("200 OK", [("Content-Length", "0")])
            return []
        said = dict(parse_qsl(str(env.get("QUERY_STRING", "")), keep_blank_values=True))
        if status:
            return _refuse(start, status, "SlowDown")
        if "X-Amz-Signature" in said:
            wrong = self._wrong_with(env, method, said)
            if wrong:
                return _refuse(start, "403 Forbidden", wrong)
        if method == "PUT":
            if len(body) != length:
                return _refuse(start, "400 Bad Request", "IncompleteBody")
            wanted = env.get("HTTP_X_AMZ_CHECKSUM_SHA256")
            if wanted and wanted != base64.b64encode(hashlib.sha256(body).digest()).decode():
                return _refuse(start, "400 Bad Request", "BadDigest")
        env["wsgi.input"] = io.BytesIO(body)
        return self._moto(env, start)  # type: ignore[no-any-return]  # moto has no types

    def _for_pages(self, env: WSGIEnvironment, start: StartResponse) -> StartResponse:
        """Say what pages may, in place of moto, which lets in every page there is."""
        origin = env.get("HTTP_ORIGIN")

        def begin(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            kept = [each for each in headers if not each[0].lower().startswith("access-control-")]
            if self.lets_pages_in and origin:
                kept += [
                    ("Access-Control-Allow-Origin", origin),
                    ("Access-Control-Allow-Methods", "GET, PUT"),
                    ("Access-Control-Allow-Headers", "*"),
                ]
            return start(status, kept, *more)

        return begin

    def _wrong_with(self, env: WSGIEnvironment, method: str, said: dict[str, str]) -> str:
        """Return what S3 says against a presigned request; empty where it is right."""
        made = datetime.strptime(said["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        ends = made + timedelta(seconds=int(said["X-Amz-Expires"]))
        if datetime.now(UTC) + self.later > ends:
            return "AccessDenied"
        names = said["X-Amz-SignedHeaders"].split(";")
        headers = {name: _header(env, name) for name in names}
        if None in headers.values():
            return "SignatureDoesNotMatch"
        signed = {name: value for name, value in said.items() if name != "X-Amz-Signature"}
        query = "&".join(f"{_safe(name)}={_safe(value)}" for name, value in sorted(signed.items()))
        canonical = "\n".join(
            [
                method,
                quote(str(env["PATH_INFO"]), safe="/-_.~"),
                query,
                "".join(f"{name}:{str(headers[name]).strip()}\n" for name in names),
                ";".join(names),
                "UNSIGNED-PAYLOAD",
            ]
        )
        _, day, region, *_ = said["X-Amz-Credential"].split("/")
        text = "\n".join(
            [
                "AWS4-HMAC-SHA256",
                said["X-Amz-Date"],
                f"{day}/{region}/s3/aws4_request",
                hashlib.sha256(canonical.encode()).hexdigest(),
            ]
        )
        right = hmac.compare_digest(_signature(day, region, text), said["X-Amz-Signature"])
        return "" if right else "SignatureDoesNotMatch"


def _header(env: WSGIEnvironment, name: str) -> str | None:
    plain = {
        "host": "HTTP_HOST",
        "content-length": "CONTENT_LENGTH",
        "content-type": "CONTENT_TYPE",
    }
    return env.get(plain.get(name, "HTTP_" + name.upper().replace("-", "_")))


def _safe(text: str) -> str:
    return quote(text, safe="-_.~")


def _signature(day: str, region: str, text: str) -> str:
    key = f"AWS4{SECRET}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _refuse(start: StartResponse, status: str, code: str) -> list[bytes]:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode()
    start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]
