"""From a terminal into running work, over real processes: two of the web, and one agent's tunnel.

The client comes to the process that does not have the tunnel, so that every byte takes the hop.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from django.utils import timezone
from pytest_django import DjangoDbBlocker
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from ledger.models import MemberRow
from marketplace.models.leases import LeaseShareRow
from metering.agent.access.frames import AGENT_PATH, CLIENT_PATH, CLOSE, DATA, Frame, frame
from tests.live.tunnels import Place, committed, listens, placed
from tests.metering.agent.works import ROOT, until
from tests.ports import free_port

pytestmark = [ROOT, pytest.mark.django_db]
SERVES = """
import http.server
open("mine", "w").write("of the lease")
server = http.server.HTTPServer(("127.0.0.1", 8888), http.server.SimpleHTTPRequestHandler)
print("ready", flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def place(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Place]:
    with ExitStack() as ended_last:
        yield placed(ended_last, django_db_blocker, tmp_path_factory.mktemp("tunnels"), SERVES)


def denied(url: str, **headers: str) -> tuple[int, str]:
    async def attempt() -> tuple[int, str]:
        try:
            async with connect(url, additional_headers=headers, proxy=None):
                return 101, ""
        except InvalidStatus as refused:
            return refused.response.status_code, json.loads(refused.response.body or b"{}")["code"]

    return asyncio.run(attempt())


def test_a_command_runs_where_the_work_runs_and_ends_as_it_does(place: Place) -> None:
    lease = str(place.lease.lease_id)
    uid = place.runtime.inside(place.lease.lease_id).uid

    code, out, err = place.run(
        "ssh", lease, "--", "id -u; pwd; cat mine; cat; exit 7", said="typed"
    )

    assert (code, out.split("\n")) == (7, [str(uid), "/lease/work", "of the leasetyped"]), err
    assert place.run("ssh", lease, "--", "printf", "%s|", "a b", "$HOME")[:2] == (0, "a b|$HOME|")


def test_files_go_into_running_work_and_out_of_it(place: Place, tmp_path: Path) -> None:
    lease = f"lease:{place.lease.lease_id}"
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "a b").write_text("by cp")
    for words in (
        ("-r", str(tmp_path / "data"), lease),
        ("-r", f"{lease}/data/deep", str(tmp_path / "home")),
        (f"{lease}/mine", str(tmp_path)),
        (f"{lease}//lease/work/mine", str(tmp_path / "named")),
    ):
        code, _, err = place.run("cp", *words)
        assert code == 0, err

    assert (tmp_path / "home" / "a b").read_text() == "by cp"
    assert (tmp_path / "mine").read_text() == (tmp_path / "named").read_text() == "of the lease"
    assert place.run("ssh", str(place.lease.lease_id), "--", "cat data/deep/*")[1] == "by cp"


def test_a_copy_that_is_refused_says_why(place: Place, tmp_path: Path) -> None:
    lease, here = f"lease:{place.lease.lease_id}", str(tmp_path)
    for code, said, *words in (
        (3, "There is no absent in that lease", f"{lease}/absent", here),
        (3, "There is no no/where", __file__, f"{lease}/no/where"),
        (4, "is a folder: say -r", f"{lease}/.", here),
        (4, "Not copied, or not all of it: dest open", __file__, f"{lease}//usr/mine"),
        (2, f"There is no {here}/absent on this machine", f"{here}/absent", lease),
        (2, "is a folder: say -r", here, lease),
        (2, "and both are", here, here),
        (2, "and neither is", lease, f"{lease}/x"),
        (2, "is no lease", "lease:mine/x", here),
        (3, "lease", f"lease:{uuid4()}/x", here),
    ):
        ended, _, err = place.run("cp", *words)
        assert (ended, said in err) == (code, True), err


def test_a_port_of_a_lease_without_a_network_is_reached_here(place: Place) -> None:
    local = free_port()
    forwarding = place.command("port-forward", str(place.lease.lease_id), f"{local}:8888")
    try:
        until(lambda: listens(local))
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{local}/mine", timeout=60) as answer:
                assert answer.read() == b"of the lease"
    finally:
        forwarding.terminate()
        forwarding.communicate()


def test_what_is_refused_says_why(place: Place) -> None:
    lease = str(place.lease.lease_id)
    code, _, err = place.run("ssh", str(uuid4()), "--", "true")
    assert (code, "lease" in err.lower()) == (3, True), err
    code, _, err = place.run("port-forward", lease, "99999")
    assert code == 2 and "99999" in err
    taken = socket.create_server(("127.0.0.1", 0))
    with taken:
        code, _, err = place.run("port-forward", lease, f"{taken.getsockname()[1]}:8888")
    assert code == 2 and "cannot be listened on" in err


def test_a_socket_is_let_in_by_a_permit_and_by_nothing_else(place: Place) -> None:
    for port in (place.first, place.second):
        url = f"ws://127.0.0.1:{port}{CLIENT_PATH}"
        permit = place.permit()
        assert denied(url) == (401, "token-missing")
        assert denied(url, Authorization="Bearer x") == (401, "permit-not-good")
        forged = permit[:-2] + ("aa" if permit[-2:] != "aa" else "bb")
        assert denied(url, Authorization=f"Bearer {forged}") == (401, "permit-not-good")
        token = place.consumer.token
        assert denied(url, Authorization=f"Bearer {token}") == (401, "permit-not-good")
        page = {"Authorization": f"Bearer {permit}", "Origin": "https://elsewhere.example"}
        assert denied(url, **page) == (403, "from-page")
        agents = f"ws://127.0.0.1:{port}{AGENT_PATH}"
        assert denied(agents, Authorization=f"Bearer {token}") == (403, "scope-missing")
        assert denied(agents, Authorization=f"Bearer {permit}")[0] == 401


def test_a_client_that_breaks_the_rules_loses_its_own_connection(place: Place) -> None:
    async def attempt(message: bytes | str) -> int:
        headers = {"Authorization": f"Bearer {place.permit()}"}
        url = f"ws://127.0.0.1:{place.first}{CLIENT_PATH}"
        async with connect(url, additional_headers=headers, proxy=None) as ws:
            await ws.send(message)
            try:
                async with asyncio.timeout(60):
                    while True:
                        got = Frame.read(await ws.recv())
                        if got.kind == CLOSE:
                            return 1000
            except ConnectionClosed as closed:
                return closed.rcvd.code if closed.rcvd else 0

    for message in (
        "text",
        b"",
        b"\x01\x00\x00\x00\x00",
        frame(DATA, 0, bytes(70_000)),
        b"\xff" * 9,
    ):
        assert asyncio.run(attempt(message)) == 1002, message
    code, out, err = place.run("ssh", str(place.lease.lease_id), "--", "echo still here")
    assert (code, out) == (0, "still here\n"), err


def test_who_is_no_member_any_more_is_cut_off(place: Place) -> None:
    shell = place.command("ssh", str(place.lease.lease_id), "--", "echo in; sleep 600")
    assert shell.stdout is not None
    assert shell.stdout.readline() == "in\n"
    member = MemberRow.objects.get(user_id=place.consumer.user_id)
    committed(lambda: MemberRow.objects.filter(user_id=place.consumer.user_id).delete())

    _, err = shell.communicate(timeout=60)
    committed(lambda: member.save(force_insert=True))

    assert shell.returncode == 255
    assert "may not use the lease any more" in err


def test_what_is_open_ends_with_the_lease(place: Place) -> None:
    """The last of this module: after it nothing runs any more."""
    lease = str(place.lease.lease_id)
    shell = place.command("ssh", lease, "--", "echo in; sleep 600")
    local = free_port()
    forwarding = place.command("port-forward", lease, f"{local}:8888")
    assert shell.stdout is not None
    assert shell.stdout.readline() == "in\n"
    until(lambda: listens(local))

    place.runtime.kill(place.lease.lease_id)
    began = time.monotonic()
    shell.communicate(timeout=60)
    assert shell.returncode == 255 and time.monotonic() - began < 60
    committed(lambda: LeaseShareRow.objects.update(phase="over", stop_at=timezone.now()))
    _, err = forwarding.communicate(timeout=60)
    assert forwarding.returncode == 0 and "has ended" in err

    code, _, err = place.run("ssh", lease, "--", "true")
    assert code == 4 and "Nothing of that lease runs" in err
