"""The policies of a market as facts: streams governance-<market>. Everybody may read them.

`why` is what whoever set a policy says for it, for the log.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import SubscriberId, TenantId, UserId
from ledger.domain.money import Money
from marketplace.domain.facts.values import Counts

LimitScope = Literal["bid", "user", "subscriber", "tenant"]
Period = Literal["day", "week", "month"]
UseKind = Literal["lease", "borrow"]


class CohortPlaced(Event, name="marketplace.cohort-placed", version=2, grown_from=1):
    """A cohort was made, or moved into another one. tenant_id: whose grant it is, if anybody's."""

    market: str
    cohort: str
    parent: str | None
    tenant_id: TenantId | None
    at: datetime
    why: str = ""


class UnitPlaced(Event, name="marketplace.unit-placed", version=2, grown_from=1):
    """A business unit was put into a cohort; None: it stands alone."""

    market: str
    subscriber_id: SubscriberId
    tenant_id: TenantId
    cohort: str | None
    at: datetime
    why: str = ""


class QuotaSet(Event, name="marketplace.quota-set", version=2, grown_from=1):
    """A unit or cohort has this quota of a class of GPUs from now on; None: not set.

    node: a cohort's name or a business unit's id. gpu_class: a model or its kind, or `any`.
    gpu_hours: of what is within nominal quota, how much is guaranteed in each period; None: all.
    """

    market: str
    node: str
    gpu_class: str
    nominal: int | None
    borrowing: int | None
    lending: int | None
    at: datetime
    gpu_hours: int | None = None
    why: str = ""


class QuotaOverridden(Event, name="marketplace.quota-overridden", version=2, grown_from=1):
    """Between two moments a unit or cohort has another quota than the one set.

    request_id: the request that an operator approved with it.
    """

    market: str
    override_id: UUID
    node: str
    gpu_class: str
    nominal: int | None
    borrowing: int | None
    lending: int | None
    starts_at: datetime
    ends_at: datetime
    request_id: UUID | None
    at: datetime
    gpu_hours: int | None = None
    why: str = ""


class OverrideLifted(Event, name="marketplace.override-lifted", version=2, grown_from=1):
    """An override ended before its time."""

    market: str
    override_id: UUID
    at: datetime
    why: str = ""


class LimitSet(Event, name="marketplace.limit-set", version=2, grown_from=1):
    """A bid, user, business unit or tenant may have no more than this; None: no limit.

    subject: whose; None: each one's that has none of its own. gpus, memory_mib: at one time.
    gpu_hours, money: in each period; of a bid, in all.
    """

    market: str
    scope: LimitScope
    subject: UUID | None
    tenant_id: TenantId | None
    gpus: int | None
    memory_mib: int | None
    gpu_hours: int | None
    money: Money | None
    period: Period
    at: datetime
    why: str = ""


class ShareWeightSet(Event, name="marketplace.share-weight-set", version=3, grown_from=1):
    """Use of a unit, or of all in a cohort, counts over this weight against what is beside it.

    1,000,000 counts once, 0 comes last. within: only while the unit stands in this cohort, whose
    tenant said it; None: wherever it stands.
    """

    market: str
    node: str
    weight_ppm: int
    at: datetime
    why: str = ""
    within: str | None = None


class HalfLifeSet(Event, name="marketplace.half-life-set", version=2, grown_from=1):
    """Use is forgotten by half in this time."""

    market: str
    seconds: int
    at: datetime
    why: str = ""


class CountingSet(Event, name="marketplace.counting-set"):
    """How quotas and limits count a part of a card from now on.

    counts: `whole`, each as one GPU; `parts`, as the part of its card that it is.
    """

    market: str
    counts: Counts
    at: datetime
    why: str = ""


class GuaranteePeriodSet(Event, name="marketplace.guarantee-period-set"):
    """Guaranteed GPU-hours are counted in spans of this length, one of which starts then."""

    market: str
    seconds: int
    starts_at: datetime
    at: datetime
    why: str = ""


class LeastRunSet(Event, name="marketplace.least-run-set", version=3, grown_from=1):
    """No lease is interrupted for another bid before it ran so long.

    gpu_class: of which GPUs, parts of them too; None: of all that no class speaks of. lifted: the
    class has no time of its own any more, and `seconds` says nothing.
    firm: it is not about leases but about work that may be paused: so much of it is done first.
    """

    market: str
    seconds: int
    at: datetime
    why: str = ""
    gpu_class: str | None = None
    lifted: bool = False
    firm: bool = False


class UseAllowed(Event, name="marketplace.use-allowed"):
    """Somebody may, or may not, lease GPUs of a class, or borrow them.

    who: a cohort's name, or the id of a business unit or tenant; None: everybody of whom no
    other policy speaks.
    """

    market: str
    who: str | None
    gpu_class: str
    what: UseKind
    allowed: bool
    at: datetime
    why: str = ""


class QuotaRequested(Event, name="marketplace.quota-requested"):
    """A business unit asks for another nominal quota between two moments.

    expires_at: when the request can no longer be approved.
    """

    market: str
    request_id: UUID
    tenant_id: TenantId
    subscriber_id: SubscriberId
    user_id: UserId | None
    gpu_class: str
    nominal: int
    starts_at: datetime
    ends_at: datetime
    why: str
    expires_at: datetime
    at: datetime


class QuotaRequestApproved(Event, name="marketplace.quota-request-approved"):
    """An operator approved a request for quota.

    token_id: whoever has it may take the quota up until `expires_at`, once.
    """

    market: str
    request_id: UUID
    token_id: UUID
    expires_at: datetime
    at: datetime


class QuotaRequestDeclined(Event, name="marketplace.quota-request-declined"):
    """An operator declined a request for quota."""

    market: str
    request_id: UUID
    why: str
    at: datetime


GovernanceEvent = (
    CohortPlaced
    | UnitPlaced
    | QuotaSet
    | QuotaOverridden
    | OverrideLifted
    | LimitSet
    | ShareWeightSet
    | HalfLifeSet
    | CountingSet
    | GuaranteePeriodSet
    | LeastRunSet
    | UseAllowed
    | QuotaRequested
    | QuotaRequestApproved
    | QuotaRequestDeclined
)
