"""The market without a network, as the client of folders meets it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
from django.test import Client as Browser

from config.web.transfers import Transfers as Served
from marketplace.sdk.client import Client
from marketplace.sdk.printing import Printer
from marketplace.sdk.session import Session
from marketplace.sdk.transfers import Transfers
from marketplace.storage.port import Storage
from tests.access.conftest import Caller
from tests.contracts.storages.conftest import nobody
from tests.marketplace.files.conftest import read

SERVER = "http://market.example"
Trouble = Callable[[httpx.Request], httpx.Response | None]


class Here:
    """The market without a network: the API by Django's client, blobs by the ASGI application."""

    def __init__(self, caller: Caller, kept: Storage) -> None:
        self._app = Served(nobody, storage=lambda: kept)
        self.sent: list[str] = []
        self.trouble: Trouble = lambda request: None
        transport = httpx.MockTransport(self._answer)
        client = Client(SERVER, caller.token, transport=transport, sleep=lambda _: None)
        self.session = Session(client, Printer(as_json=False), SERVER)
        self.transport = transport

    def transfers(self, session: Session) -> Transfers:
        return Transfers(session.client, SERVER, transport=self.transport, sleep=lambda _: None)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        troubled = self.trouble(request)
        if troubled is not None:
            return troubled
        if not request.url.path.startswith("/blobs/"):
            answer = Browser(raise_request_exception=False).generic(
                request.method,
                request.url.raw_path.decode(),
                request.content,
                content_type="application/json",
                headers={"Authorization": request.headers["Authorization"]},
            )
            read()
            return httpx.Response(
                answer.status_code, content=answer.content, headers=answer.headers
            )
        assert "Authorization" not in request.headers, "a token is for the market alone"
        self.sent.append(request.method)

        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app)
            async with httpx.AsyncClient(transport=transport, base_url=SERVER) as client:
                path = request.url.path
                return await client.request(
                    request.method, path, content=request.content, headers=request.headers
                )

        blob = asyncio.run(asked())
        return httpx.Response(blob.status_code, content=blob.content, headers=blob.headers)
