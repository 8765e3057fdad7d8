"""Two tenants with members and tokens, and a client that speaks for one of them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4, uuid5

import pytest
from django.test import Client
from django.utils import timezone

from ledger.domain import tokens
from ledger.models import MemberRow, Person, TenantRow, TokenRow


@dataclass(frozen=True)
class Caller:
    """A member with a token, and how they call the API."""

    tenant_id: UUID
    user_id: UUID
    token_id: UUID
    token: str

    def get(self, path: str, **headers: str) -> Any:
        return Client(raise_request_exception=False).get(path, headers=self._headers(headers))

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        kind = headers.pop("content_type", "application/json")
        client = Client(raise_request_exception=False)
        return client.post(path, text, content_type=kind, headers=self._headers(headers))

    def ask(self, method: str, path: str, body: Any) -> Any:
        client = Client(raise_request_exception=False)
        text = json.dumps(body)
        headers = self._headers({})
        return client.generic(method, path, text, content_type="application/json", headers=headers)

    def delete(self, path: str, **headers: str) -> Any:
        client = Client(raise_request_exception=False)
        return client.delete(path, headers=self._headers(headers))

    def _headers(self, headers: dict[str, str]) -> dict[str, str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return {"Authorization": f"Bearer {self.token}", **named}


def admit(slug: str, *roles: str, scopes: tuple[str, ...] = tokens.SCOPES) -> Caller:
    """Write the read models of a tenant, a member and a token, as their projections would."""
    tenant_id, user_id, token_id = uuid4(), uuid4(), uuid4()
    now = timezone.now()
    text = tokens.write("user", os.urandom(32))
    written = tokens.read(text)
    TenantRow.objects.create(
        tenant_id=tenant_id,
        slug=slug,
        title=slug.title(),
        currency="USD",
        is_platform=False,
        registered_at=now,
    )
    Person.objects.create(id=user_id, email=f"someone@{slug}.example")
    MemberRow.objects.create(
        member_id=uuid5(tenant_id, str(user_id)),
        tenant_id=tenant_id,
        user_id=user_id,
        roles=list(roles),
        tenant_title=slug.title(),
        is_platform=False,
        admitted_at=now,
    )
    TokenRow.objects.create(
        token_id=token_id,
        tenant_id=tenant_id,
        user_id=user_id,
        title="test",
        prefix=written.prefix,
        sha256=written.sha256,
        scopes=list(scopes),
        expires_at=now + timedelta(days=1),
        issued_at=now,
    )
    return Caller(tenant_id, user_id, token_id, text)


@pytest.fixture
def ada(db: None) -> Caller:
    return admit("ada-labs", "consumer")


@pytest.fixture
def bob(db: None) -> Caller:
    return admit("bob-works", "consumer")
