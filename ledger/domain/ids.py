"""The ids of the things that every app speaks of."""

from __future__ import annotations

from typing import NewType
from uuid import UUID

TenantId = NewType("TenantId", UUID)
SubscriberId = NewType("SubscriberId", UUID)
UserId = NewType("UserId", UUID)
TokenId = NewType("TokenId", UUID)
AccountId = NewType("AccountId", UUID)
HoldId = NewType("HoldId", UUID)
EntryId = NewType("EntryId", UUID)
HostId = NewType("HostId", UUID)
OfferId = NewType("OfferId", UUID)
BidId = NewType("BidId", UUID)
LeaseId = NewType("LeaseId", UUID)
