"""Who may list what on a market. Everybody may list everything until a permit says otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from ledger.domain.ids import TenantId
from ledger.domain.refusal import Forbidden, Invalid, Refusal
from listings.domain.gpus import is_of, names_part
from listings.domain.permit_events import ListingAllowed

ANY_CLASS = "any"
PERMITS_MAX = 1_000

_CLASS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,39}")


class ListingNotAllowed(Forbidden):
    """The operators of this market do not let your organisation list such GPUs.

    `gpu_model` is the first of them that may not be listed.
    """


class PermitsNotYours(Forbidden):
    """Only an operator of the platform decides who may list what."""


class PermitClassUnreadable(Invalid):
    """A permit names a model or kind of GPUs such as H100, or any."""


class TooManyPermits(Refusal):
    """A market has at most a thousand permits to list."""


@dataclass(frozen=True, slots=True)
class ListingPermits:
    """All permits of one market, as its stream tells them."""

    STREAM: ClassVar[str] = "listing-permits"

    allowed: Mapping[tuple[TenantId | None, str], bool] = field(default_factory=dict)

    @classmethod
    def evolve(cls, state: ListingPermits | None, event: ListingAllowed, /) -> ListingPermits:
        """Return the permits after `event`."""
        now = state or cls()
        key = (event.tenant_id, event.gpu_class)
        return replace(now, allowed={**now.allowed, key: event.allowed})

    def may_list(self, tenant_id: TenantId, model: str) -> bool:
        """Tell if an organisation may list a model of GPU.

        What speaks of a card holds for all that is cut from it: MIG instances, shares by MPS and
        time slices. What speaks of the organisation comes before what speaks of each; of those
        what names the part, then the narrowest class of cards, then any.
        """
        for whose in (tenant_id, None):
            found = [
                (gpu_class == ANY_CLASS, not names_part(gpu_class), -len(gpu_class), allowed)
                for (who, gpu_class), allowed in self.allowed.items()
                if who == whose and (gpu_class == ANY_CLASS or is_of(gpu_class, model))
            ]
            if found:
                return min(found)[3]
        return True


def need_permits(
    permits: ListingPermits | None, tenant_id: TenantId, models: Iterable[str]
) -> None:
    """Refuse to let an organisation list a model that it may not.

    Raises: ListingNotAllowed.
    """
    if permits is None:
        return
    for model in sorted(set(models)):
        if not permits.may_list(tenant_id, model):
            raise ListingNotAllowed(gpu_model=model)


def permit(
    permits: ListingPermits | None, event: ListingAllowed, *, by_platform: bool
) -> Sequence[ListingAllowed]:
    """Decide who may list what; the same again changes nothing.

    Raises: PermitsNotYours, PermitClassUnreadable, TooManyPermits.
    """
    now = permits or ListingPermits()
    if not by_platform:
        raise PermitsNotYours()
    if not _CLASS.fullmatch(event.gpu_class):
        raise PermitClassUnreadable(given=event.gpu_class[:40])
    key = (event.tenant_id, event.gpu_class)
    if now.allowed.get(key) == event.allowed:
        return []
    if key not in now.allowed and len(now.allowed) >= PERMITS_MAX:
        raise TooManyPermits()
    return [event]
