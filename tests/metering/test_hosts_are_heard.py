"""Since when and until when a host was heard, for whoever counts what it had time to say."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from ledger.domain.ids import HostId, TenantId
from marketplace.domain.leases.lease import Heard
from metering.ingest.contacts import PAUSE, note_seen
from metering.models import AgentContact
from metering.queries.uptime import contacts
from tests.conftest import NOON

HOST, TENANT = HostId(UUID(int=0xA1)), TenantId(UUID(int=0xA2))
SECOND = timedelta(seconds=1)

pytestmark = pytest.mark.django_db


def heard_at(*after: timedelta) -> Heard:
    for each in after:
        note_seen(host_id=HOST, tenant_id=TENANT, now=NOON + each)
    return contacts()[HOST]


def test_short_pauses_are_none() -> None:
    assert heard_at(0 * SECOND, PAUSE, 2 * PAUSE) == Heard(NOON, NOON + 2 * PAUSE)


def test_after_a_long_pause_it_is_heard_anew() -> None:
    late = PAUSE + SECOND
    assert heard_at(0 * SECOND, late, late + SECOND) == Heard(NOON + late, NOON + late + SECOND)


def test_what_arrives_late_moves_nothing_back() -> None:
    assert heard_at(2 * PAUSE, 0 * SECOND) == Heard(NOON + 2 * PAUSE, NOON + 2 * PAUSE)


def test_a_host_that_was_known_before_this_was_noted_has_been_heard_all_along() -> None:
    AgentContact.objects.create(host_id=HOST, tenant_id=TENANT, last_seen_at=NOON)
    assert contacts()[HOST].since < NOON - timedelta(days=365)
    assert heard_at(SECOND).since < NOON - timedelta(days=365)
