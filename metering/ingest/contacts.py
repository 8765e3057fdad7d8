"""Signs of life of agents, and alarms about what they sent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import structlog
from django.db import connection

from ledger.domain.ids import HostId, TenantId
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta, Position
from ledger.rest.problems import plain
from listings.commands import report_inventory
from listings.domain.events import Gpu
from listings.domain.sandboxes import AgentSays
from metering.agent.later import Beyond
from metering.agent.wire import Registration
from metering.models import AgentContact, IngestAlarm

log = structlog.get_logger()

PAUSE = timedelta(seconds=30)
"""Agents say something every few seconds: after a pause of so long their line was down."""

LATER_AGENT = "agent-of-later-version"
NOTED_AGAIN = timedelta(days=1)
BEYOND_MAX = 50
"""So many such notes are kept of a host in that time."""

_HEARD_SINCE = """CASE WHEN EXCLUDED.last_seen_at > known.last_seen_at + make_interval(secs => %s)
    THEN EXCLUDED.last_seen_at ELSE known.heard_since END"""
_SEEN = (
    """
INSERT INTO metering_agentcontact AS known
    (host_id, tenant_id, agent_version, hostname, boot_id, registered_at, last_seen_at, heard_since)
SELECT host_id, tenant_id, '', '', NULL, NULL, %s, %s
FROM unnest(%s::uuid[], %s::uuid[]) AS heard (host_id, tenant_id) ORDER BY host_id
ON CONFLICT (host_id) DO UPDATE
    SET last_seen_at = greatest(known.last_seen_at, EXCLUDED.last_seen_at),
        heard_since = """
    + _HEARD_SINCE
)
_REGISTERED = (
    """
INSERT INTO metering_agentcontact AS known
    (host_id, tenant_id, agent_version, hostname, boot_id, registered_at, last_seen_at, heard_since,
    measures)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (host_id) DO UPDATE SET tenant_id = EXCLUDED.tenant_id,
    agent_version = EXCLUDED.agent_version, hostname = EXCLUDED.hostname,
    boot_id = EXCLUDED.boot_id, registered_at = EXCLUDED.registered_at,
    measures = EXCLUDED.measures,
    last_seen_at = greatest(known.last_seen_at, EXCLUDED.last_seen_at),
    heard_since = """
    + _HEARD_SINCE
)


def note_seen(*, host_id: HostId, tenant_id: TenantId, now: datetime) -> None:
    """Note that a host's agent was heard, on the server's clock."""
    note_all_seen({host_id: tenant_id}, now=now)


def note_all_seen(tenants: Mapping[HostId, TenantId], *, now: datetime) -> None:
    """Note that the agents of these hosts were heard at the same time."""
    ids = [list(map(str, tenants)), list(map(str, tenants.values()))]
    with connection.cursor() as cursor:
        cursor.execute(_SEEN, [now, now, *ids, PAUSE.total_seconds()])


def register_agent(
    store: EventStore,
    registration: Registration,
    *,
    host_id: HostId,
    tenant_id: TenantId,
    by: Meta,
    now: datetime,
) -> Position:
    """Take in what an agent says of itself and its host's GPUs.

    Raises: HostUnknown, HostIsRetired, GpuUnreadable, MigImpossible.
    """
    gpus = [
        Gpu(
            uuid=gpu.uuid,
            model=gpu.model,
            memory_mib=gpu.memory_mib,
            compute_capability=gpu.compute_capability,
            driver=gpu.driver,
            nvlink_group=gpu.nvlink_group,
            mig_enabled=gpu.mig_enabled,
            mig_profiles=gpu.mig_profiles,
        )
        for gpu in registration.gpus
    ]
    cards = {gpu.uuid: gpu.card_uuid for gpu in registration.gpus if gpu.card_uuid is not None}
    position = report_inventory(
        store,
        host_id=host_id,
        gpus=gpus,
        cards=cards,
        says=_says(registration),
        taking=registration.taking,
        by=by,
        now=now,
    )
    said = (registration.agent_version, registration.hostname, registration.boot_id)
    measures = {
        each.gpu_uuid: {"busy_by": each.busy_by, "energy": each.energy}
        for each in registration.measures
    }
    with connection.cursor() as cursor:
        cursor.execute(
            _REGISTERED,
            (host_id, tenant_id, *said, now, now, now, json.dumps(measures), PAUSE.total_seconds()),
        )
    return position


def _says(registration: Registration) -> AgentSays:
    """Return what an agent says of itself; one of before only said whether it parts tenants."""
    sandbox, apart = registration.sandbox, registration.separates_tenants
    if not sandbox and apart is not None:
        sandbox = "process" if apart else "account"
    enforces = ((each.what, each.by) for each in registration.enforces)
    return AgentSays.so(sandbox, enforces, registration.abilities)


def note_beyond(beyond: Iterable[Beyond], *, host_id: HostId, now: datetime) -> None:
    """Note, once a day for each thing, what an agent of a later version said beyond this one.

    Of a host that was never heard before nothing is noted yet.
    """
    contact = AgentContact.objects.filter(host_id=host_id).first()
    if contact is None:
        return
    said = {(each.place, each.said) for each in beyond}
    known = IngestAlarm.objects.filter(host_id=host_id, code=LATER_AGENT, at__gt=now - NOTED_AGAIN)
    noted = {(row["place"], row["said"]) for row in known.values_list("details", flat=True)}
    for place, word in sorted(said - noted)[: max(0, BEYOND_MAX - len(noted))]:
        log.warning("ingest.later-agent", host=str(host_id), place=place, said=word)
        IngestAlarm.objects.create(
            host_id=host_id,
            tenant_id=contact.tenant_id,
            code=LATER_AGENT,
            details={"place": place, "said": word, "agent_version": contact.agent_version},
            at=now,
        )


def raise_alarm(refusal: Refusal, *, host_id: HostId, tenant_id: TenantId, now: datetime) -> None:
    """Keep and log that an agent sent what should never be."""
    details = {name: plain(value) for name, value in refusal.details.items()}
    log.error("ingest.alarm", host=str(host_id), code=refusal.code, **details)
    IngestAlarm.objects.create(
        host_id=host_id, tenant_id=tenant_id, code=refusal.code, details=details, at=now
    )
