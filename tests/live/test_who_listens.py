"""A socket is open for somebody who may listen, as long as they may, and not for hundreds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.contrib.sessions.backends.db import SessionStore
from django.db import connections
from django.test import Client

from config.site.live import attendance
from config.site.live.attendance import NOBODY, SOCKETS_MAX, TOO_MANY, Attended
from ledger.models import MemberRow, Person
from tests.access.conftest import admit

communicator: Any = ApplicationCommunicator  # asgiref's testing tools have no types


class Listening(Attended):
    """A socket that says nothing."""

    async def connect(self) -> None:
        if await self.arrived():
            await self.accept()

    async def disconnect(self, code: int) -> None:
        self.left()


def signed_in() -> tuple[Person, Any]:
    person = Person.objects.get(id=admit("acme", "consumer").user_id)
    client = Client()
    client.force_login(person)
    return person, client.session


async def opened(person: Person, session: Any) -> tuple[Any, dict[str, Any]]:
    scope = {"type": "websocket", "path": "/ws/market", "user": person, "session": session}
    socket = communicator(Listening.as_asgi(), scope)
    await socket.send_input({"type": "websocket.connect"})
    assert (await socket.receive_output(10))["type"] == "websocket.accept"
    return socket, {}


async def closed(socket: Any) -> int:
    answer = await socket.receive_output(10)
    assert answer["type"] == "websocket.close"
    return int(answer["code"])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(attendance, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(Attended, "looking", None)
    yield
    Attended.listening.clear()
    asyncio.run(sync_to_async(connections.close_all)())  # those of the thread that looked


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["log-out", "dismissed", "shut out", "new password"])
def test_a_socket_is_closed_when_its_person_may_listen_no_more(how: str) -> None:
    person, session = signed_in()

    def end() -> None:
        match how:
            case "log-out":
                SessionStore(session.session_key).flush()
            case "dismissed":
                MemberRow.objects.filter(user_id=person.pk).delete()
            case "shut out":
                Person.objects.filter(pk=person.pk).update(is_active=False)
            case _:
                person.set_password("another one entirely")
                person.save()
        connections.close_all()

    async def story() -> int:
        socket, _ = await opened(person, session)
        assert await socket.receive_nothing(0.3)
        await sync_to_async(end)()
        return await closed(socket)

    assert asyncio.run(story()) == NOBODY
    assert not Attended.listening


@pytest.mark.django_db(transaction=True)
def test_one_person_holds_so_many_sockets_and_no_more() -> None:
    person, session = signed_in()

    async def story() -> tuple[int, int]:
        sockets = [(await opened(person, session))[0] for _ in range(SOCKETS_MAX)]
        extra, _ = await opened(person, session)
        code = await closed(extra)
        await sockets[0].send_input({"type": "websocket.disconnect", "code": 1001})
        await sockets[0].wait(10)
        again, _ = await opened(person, session)
        assert await again.receive_nothing(0.2)
        return code, len(Attended.listening)

    assert asyncio.run(story()) == (TOO_MANY, SOCKETS_MAX)
