"""What is open into running work ends at the news that it may not go on, in another process.

Nobody looks by themselves here: the two web processes look only every hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest
from django.utils import timezone
from pytest_django import DjangoDbBlocker

from ledger.domain.event import Event
from ledger.domain.events import MemberRemoved, TokenRevoked
from ledger.domain.ids import LeaseId, TenantId, TokenId, UserId
from ledger.eventstore.port import Expect, NewEvent
from ledger.eventstore.postgres import PostgresStore
from ledger.models import MemberRow, TokenRow
from marketplace.domain.facts.events import LeaseEnding
from marketplace.models.leases import LeaseShareRow
from metering.models import AgentTunnel
from tests.conftest import SOMEBODY
from tests.live.tunnels import Place, committed, listens, placed
from tests.metering.agent.works import ROOT, until
from tests.ports import free_port

pytestmark = [ROOT, pytest.mark.django_db]
SERVES = """
import http.server
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
    with pytest.MonkeyPatch.context() as seldom, ExitStack() as ended_last:
        seldom.setenv("TUNNELS_LOOK_SECONDS", "3600")
        yield placed(ended_last, django_db_blocker, tmp_path_factory.mktemp("ends"), SERVES)


def record(event: Event) -> None:
    news = [NewEvent(uuid4(), event)]
    PostgresStore().append(f"told-{uuid4()}", news, expected=Expect.ANY, by=SOMEBODY)


def test_a_shell_ends_when_the_token_of_who_opened_it_is_revoked(place: Place) -> None:
    shell = place.command("ssh", str(place.lease.lease_id), "--", "echo in; sleep 600")
    assert shell.stdout is not None and shell.stdout.readline() == "in\n"
    token_id = place.consumer.token_id
    ours = TokenRow.objects.filter(token_id=token_id)

    def revoke() -> None:
        ours.update(revoked_at=timezone.now())
        record(TokenRevoked(token_id=TokenId(token_id), at=timezone.now()))

    committed(revoke)
    _, err = shell.communicate(timeout=60)
    committed(lambda: ours.update(revoked_at=None))

    assert (shell.returncode, "may not use the lease any more" in err) == (255, True)


def test_a_port_ends_when_who_opened_it_is_no_member_any_more(place: Place) -> None:
    """What reads events may be behind them: the row goes a moment after the news."""
    local = free_port()
    forwarding = place.command("port-forward", str(place.lease.lease_id), f"{local}:8888")
    until(lambda: listens(local))
    shell = place.command("ssh", str(place.lease.lease_id), "--", "echo in; sleep 600")
    assert shell.stdout is not None and shell.stdout.readline() == "in\n"
    user_id, tenant_id = place.consumer.user_id, place.consumer.tenant_id
    member = MemberRow.objects.get(user_id=user_id)

    def remove() -> None:
        record(
            MemberRemoved(tenant_id=TenantId(tenant_id), user_id=UserId(user_id), at=timezone.now())
        )
        MemberRow.objects.filter(user_id=user_id).delete()

    committed(remove)
    _, err = shell.communicate(timeout=60)
    committed(lambda: member.save(force_insert=True))
    forwarding.terminate()
    forwarding.communicate()

    assert (shell.returncode, "may not use the lease any more" in err) == (255, True)


def test_a_port_ends_with_the_lease(place: Place) -> None:
    lease_id = place.lease.lease_id
    shell = place.command("ssh", str(lease_id), "--", "echo in; sleep 600")
    assert shell.stdout is not None and shell.stdout.readline() == "in\n"

    def end() -> None:
        LeaseShareRow.objects.update(phase="stop", stop_at=timezone.now())
        record(LeaseEnding(lease_id=LeaseId(lease_id), reason=100, at=timezone.now()))

    committed(end)
    _, err = shell.communicate(timeout=60)
    committed(lambda: LeaseShareRow.objects.update(phase="run", stop_at=None))

    assert shell.returncode == 255, err


def test_the_tunnel_of_an_agent_ends_when_its_token_is_revoked(place: Place) -> None:
    """The last of this module: the agent comes again, and is not let in."""
    [tunnel] = AgentTunnel.objects.all()
    agents = TokenRow.objects.filter(scopes=["agent"])
    [token_id] = agents.values_list("token_id", flat=True)

    def revoke() -> None:
        agents.update(revoked_at=timezone.now())
        record(TokenRevoked(token_id=TokenId(token_id), at=timezone.now()))

    committed(revoke)

    until(lambda: not AgentTunnel.objects.filter(host_id=tunnel.host_id).exists())
