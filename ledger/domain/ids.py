"""The ids of the things that every app speaks of."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha1
from typing import NewType
from uuid import UUID, SafeUUID

TenantId = NewType("TenantId", UUID)
SubscriberId = NewType("SubscriberId", UUID)
UserId = NewType("UserId", UUID)
TokenId = NewType("TokenId", UUID)
InvitationId = NewType("InvitationId", UUID)
AccountId = NewType("AccountId", UUID)
HoldId = NewType("HoldId", UUID)
DisputeId = NewType("DisputeId", UUID)
EntryId = NewType("EntryId", UUID)
HostId = NewType("HostId", UUID)
MaintenanceId = NewType("MaintenanceId", UUID)
EnrolmentId = NewType("EnrolmentId", UUID)
OfferId = NewType("OfferId", UUID)
BidId = NewType("BidId", UUID)
LeaseId = NewType("LeaseId", UUID)
FolderId = NewType("FolderId", UUID)
PaymentId = NewType("PaymentId", UUID)
RefundId = NewType("RefundId", UUID)

_new = object.__new__
_set_number, _set_safety = vars(UUID)["int"].__set__, vars(UUID)["is_safe"].__set__
_number_of, _UNKNOWN = int.from_bytes, SafeUUID.unknown
_LESS = ~(0xF << 76 | 0xC << 60)
_VERSION_5 = 5 << 76 | 0x8 << 60


def named(namespace: UUID) -> Callable[[str], UUID]:
    """Return what gives the id of a name within a namespace: `uuid.uuid5`, at a third of its cost.

    Whoever names many things within one namespace asks for it once.
    """
    begin = sha1(namespace.bytes, usedforsecurity=False).copy

    def id_of(name: str) -> UUID:
        whole = begin()
        whole.update(name.encode())
        made = _new(UUID)
        # Into the slots at once: what a digest gives needs none of the constructor's checks.
        _set_number(made, _number_of(whole.digest()[:16]) & _LESS | _VERSION_5)
        _set_safety(made, _UNKNOWN)
        return made

    return id_of


def of_bytes(data: bytes) -> UUID:
    """Return `UUID(bytes=data)` at half its cost. data: sixteen bytes, as a database gives them."""
    made = _new(UUID)
    _set_number(made, _number_of(data))
    _set_safety(made, _UNKNOWN)
    return made


def text_of(which: UUID) -> str:
    """Return an id as `str` does, at half its cost."""
    text = which.int.to_bytes(16).hex("-", 2)  # four digits each, so three hyphens are too many
    return f"{text[:4]}{text[5:29]}{text[30:34]}{text[35:]}"
