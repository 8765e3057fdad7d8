"""The agent of a host, as it asks the real API about the files of a lease."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.utils import timezone

from ledger.domain import tokens
from ledger.models import TokenRow
from tests.access.conftest import Caller


class Host(Caller):
    """The agent of a host."""

    def ask(self, lease_id: object, what: str, said: dict[str, Any]) -> Any:
        return self.post(f"/api/v1/agent/leases/{lease_id}/{what}", said)


def host(host_id: UUID, tenant_id: UUID) -> Host:
    text = tokens.write("host", hashlib.sha256(host_id.bytes).digest())
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
    return Host(tenant_id, uuid4(), uuid4(), text)


class Linked:
    def __init__(self, links: dict[str, Any]) -> None:
        self._links = links

    def json(self) -> Any:
        return {"links": self._links}
