"""An agent of a host that speaks to the API of the test."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client
from django.utils import timezone

from ledger.domain import tokens
from ledger.domain.ids import HostId, LeaseId, TenantId
from ledger.eventstore.postgres import PostgresStore
from ledger.models import TokenRow
from listings.commands import register_host
from metering.agent import wire
from metering.domain.instants import millis_down
from tests.access.conftest import Caller, admit
from tests.conftest import SOMEBODY


def host_token(host_id: UUID, tenant_id: UUID) -> str:
    """Write the read model of a host's token, as its projection would."""
    text = tokens.write("host", os.urandom(32))
    written, now = tokens.read(text), timezone.now()
    TokenRow.objects.create(
        token_id=uuid4(),
        tenant_id=tenant_id,
        host_id=host_id,
        title="agent",
        prefix=written.prefix,
        sha256=written.sha256,
        scopes=["agent"],
        expires_at=now + timedelta(days=1),
        issued_at=now,
    )
    return text


class HostAgent:
    """The agent of a registered host, as far as HTTP is concerned."""

    def __init__(self, owner: Caller) -> None:
        self.host_id = HostId(uuid4())
        self.boot_id, self.lease_id = uuid4(), LeaseId(uuid4())
        self.tenant_id = TenantId(owner.tenant_id)
        self.token = host_token(self.host_id, owner.tenant_id)
        register_host(
            PostgresStore(),
            host_id=self.host_id,
            tenant_id=self.tenant_id,
            title="rack 2",
            market="main",
            region="eu-west",
            by=SOMEBODY,
            now=timezone.now(),
        )

    def call(self, method: str, path: str, body: Any = None) -> Any:
        return Client(raise_request_exception=False).generic(
            method,
            path,
            "" if body is None else json.dumps(body),
            content_type="application/json",
            headers={"Authorization": f"Bearer {self.token}"},
        )

    def register(self, **fields: Any) -> Any:
        card = wire.Gpu(
            uuid="GPU-a",
            model="NVIDIA H100 80GB HBM3",
            memory_mib=81_559,
            compute_capability="9.0",
            driver="580.65",
            nvlink_group=None,
            mig_enabled=False,
            mig_profiles=(),
        )
        known = wire.Registration(
            agent_version="1.0", boot_id=self.boot_id, hostname="n1", gpus=(card,)
        )
        return self.call("PUT", wire.HOST_PATH, known.to_json() | fields)

    def send(self, seq: Any, start: datetime, end: datetime, **fields: Any) -> Any:
        start_ms, end_ms = millis_down(start), millis_down(end)
        known: dict[str, Any] = {
            "seq": seq,
            "lease_id": str(self.lease_id),
            "gpu_uuid": "GPU-a",
            "start_ms": start_ms,
            "end_ms": end_ms,
            "granted_ms": end_ms - start_ms,
            "occupied_ms": None,
            "busy_ms": 0,
            "memory_used_mib": None,
        }
        batch = [known | fields]
        body = {"boot_id": str(self.boot_id), "batch": batch, "health": []}
        return self.call("POST", wire.SAMPLES_PATH, body)

    def report(self, what: str, **fields: Any) -> Any:
        known = {
            "report_id": str(UUID(int=5)),
            "lease_id": str(self.lease_id),
            "what": what,
            "at": timezone.now().isoformat(),
            "exit_code": None,
            "detail": "",
        }
        body = {"boot_id": str(self.boot_id), "reports": [known | fields]}
        return self.call("POST", wire.REPORTS_PATH, body)


@pytest.fixture
def owner(db: None) -> Caller:
    return admit("ada-labs", "owner")
