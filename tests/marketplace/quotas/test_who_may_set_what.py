"""Policies are facts: who may set which, what they must not say, and requests that expire."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from ledger.domain.ids import SubscriberId, TenantId
from ledger.domain.refusal import Refusal
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Meta, load
from marketplace.commands.quotas import approve_request, set_policy, take_up
from marketplace.domain.facts.policy_events import (
    CohortPlaced,
    CountingSet,
    HalfLifeSet,
    LeastRunSet,
    LimitSet,
    QuotaRequested,
    QuotaSet,
    ShareWeightSet,
    UnitPlaced,
)
from marketplace.domain.governance.authority import (
    BorrowingNeedsCohort,
    CohortCircular,
    CohortUnknown,
    FigureOutOfRange,
    GrantExceeded,
    PolicyNotYours,
    Setter,
)
from marketplace.domain.governance.dispatch import Policy
from marketplace.domain.governance.quota_requests import (
    EscalationTokenWrong,
    QuotaRequestClosed,
    QuotaRequestUnknown,
)
from marketplace.domain.quotas.policies_in_force import Policies
from tests.conftest import NOON

MARKET = "main"
UNI, OTHER = TenantId(UUID(int=1)), TenantId(UUID(int=2))
LAB = SubscriberId(UUID(int=11))
PLATFORM, DEAN, RIVAL = Setter(OTHER, True), Setter(UNI, False), Setter(OTHER, False)
BY = Meta(actor="user:somebody")
REQUEST = UUID(int=77)


def cohort(name: str, parent: str | None = None, tenant: TenantId | None = None) -> CohortPlaced:
    return CohortPlaced(market=MARKET, cohort=name, parent=parent, tenant_id=tenant, at=NOON)


def unit(into: str | None) -> UnitPlaced:
    return UnitPlaced(market=MARKET, subscriber_id=LAB, tenant_id=UNI, cohort=into, at=NOON)


def quota(node: str, nominal: int | None, borrowing: int | None = None) -> QuotaSet:
    return QuotaSet(
        market=MARKET,
        node=node,
        gpu_class="H100",
        nominal=nominal,
        borrowing=borrowing,
        lending=None,
        at=NOON,
    )


class Office:
    """A market in which a university was granted eight H100, and has one unit."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        for policy in (cohort("uni", tenant=UNI), quota("uni", 8), unit("uni")):
            self.set(policy)

    def set(self, policy: Policy, setter: Setter = PLATFORM) -> None:
        set_policy(self.store, policy=policy, setter=setter, by=BY)

    @property
    def policies(self) -> Policies:
        state = load(self.store, Policies, MARKET)
        assert state is not None
        return state


def test_a_tenant_shares_out_its_grant_and_no_more() -> None:
    office = Office()
    office.set(quota(str(LAB), 5), DEAN)
    tree = office.policies.tree("H100", NOON)
    assert (tree.subtree[str(LAB)], tree.subtree["uni"]) == (5, 8), "three are left in the pot"
    with pytest.raises(GrantExceeded):
        office.set(quota(str(LAB), 9), DEAN)
    assert office.policies.tree("H100", NOON).subtree[str(LAB)] == 5


@pytest.mark.parametrize(
    ("policy", "setter"),
    [
        (cohort("more"), DEAN),
        (quota("uni", 99), DEAN),
        (quota(str(LAB), 1), RIVAL),
        (unit(None), DEAN),
        (unit("uni"), RIVAL),
        (ShareWeightSet(market=MARKET, node="uni", weight_ppm=9, at=NOON), DEAN),
        (ShareWeightSet(market=MARKET, node=str(LAB), weight_ppm=9, at=NOON), RIVAL),
        (HalfLifeSet(market=MARKET, seconds=3_600, at=NOON), DEAN),
        (LeastRunSet(market=MARKET, seconds=3_600, at=NOON), DEAN),
        (CountingSet(market=MARKET, counts="parts", at=NOON), DEAN),
    ],
    ids=[
        "cohort",
        "own grant",
        "another's unit",
        "out of its grant",
        "rival",
        "own weight",
        "rival's",
        "half",
        "run",
        "counting",
    ],
)
def test_nobody_gives_themselves_more(policy: Policy, setter: Setter) -> None:
    office = Office()
    before = office.policies
    with pytest.raises(PolicyNotYours):
        office.set(policy, setter)
    assert office.policies == before


def weight(node: str, ppm: int) -> ShareWeightSet:
    return ShareWeightSet(market=MARKET, node=node, weight_ppm=ppm, at=NOON)


def test_a_tenant_weighs_its_units_for_as_long_as_they_stand_in_its_grant() -> None:
    office = Office()
    office.set(cohort("common"))
    office.set(weight(str(LAB), 3_000_000), DEAN)
    assert office.policies.weight_of(str(LAB)) == 3_000_000

    office.set(unit("common"))
    assert office.policies.weight_of(str(LAB)) == 1_000_000, "nothing against others"
    with pytest.raises(PolicyNotYours):
        office.set(weight(str(LAB), 9_000_000), DEAN)

    office.set(unit("uni"))
    assert office.policies.weight_of(str(LAB)) == 3_000_000
    office.set(weight(str(LAB), 3_000_000))
    office.set(unit("common"))
    assert office.policies.weight_of(str(LAB)) == 3_000_000, "the platform's counts anywhere"


def test_a_weight_that_is_in_force_is_not_set_again() -> None:
    office = Office()
    for setter in (DEAN, DEAN, PLATFORM, PLATFORM):
        office.set(weight(str(LAB), 2_000_000), setter)
    office.set(weight("uni", 2_000_000))

    said = [each.event for each in office.store.read_stream(f"governance-{MARKET}")]
    weighed = [each.within for each in said if isinstance(each, ShareWeightSet)]
    assert weighed == ["uni", None, None]
    assert office.policies.weight_of("uni") == 2_000_000


@pytest.mark.parametrize(
    ("policy", "refusal"),
    [
        (quota("nowhere", 1), CohortUnknown),
        (quota("uni", -1), FigureOutOfRange),
        (LeastRunSet(market=MARKET, seconds=86_401, at=NOON), FigureOutOfRange),
        (quota("uni", 4, borrowing=1), BorrowingNeedsCohort),
        (cohort("uni", "uni"), CohortCircular),
        (cohort("new", "nowhere"), CohortUnknown),
    ],
)
def test_what_makes_no_sense_is_refused(policy: Policy, refusal: type[Refusal]) -> None:
    office = Office()
    with pytest.raises(refusal):
        office.set(policy)


def test_a_tenant_limits_its_own_people_only() -> None:
    office = Office()
    limit = LimitSet(
        market=MARKET,
        scope="subscriber",
        subject=LAB,
        tenant_id=UNI,
        gpus=2,
        memory_mib=None,
        gpu_hours=None,
        money=None,
        period="day",
        at=NOON,
    )
    office.set(limit, DEAN)
    assert office.policies.limit("subscriber", LAB) == limit
    with pytest.raises(PolicyNotYours):
        office.set(replace(limit, gpus=None), RIVAL)
    with pytest.raises(PolicyNotYours):
        office.set(replace(limit, subject=None), DEAN)


def test_the_same_policy_again_is_no_news() -> None:
    office = Office()
    head = office.store.head()
    office.set(replace(quota("uni", 8), at=NOON + timedelta(hours=1)))
    assert office.store.head() == head


def asked(office: Office) -> None:
    office.set(
        QuotaRequested(
            market=MARKET,
            request_id=REQUEST,
            tenant_id=UNI,
            subscriber_id=LAB,
            user_id=None,
            gpu_class="H100",
            nominal=6,
            starts_at=NOON,
            ends_at=NOON + timedelta(days=3),
            why="the deadline",
            expires_at=NOON + timedelta(days=1),
            at=NOON,
        ),
        DEAN,
    )


def take(office: Office, token: UUID, setter: Setter = DEAN, **later: float) -> None:
    now = NOON + timedelta(**later)
    take_up(
        office.store,
        market=MARKET,
        request_id=REQUEST,
        token_id=token,
        setter=setter,
        by=BY,
        now=now,
    )


def approve(office: Office, setter: Setter = PLATFORM, **later: float) -> UUID:
    approve_request(
        office.store,
        market=MARKET,
        request_id=REQUEST,
        setter=setter,
        by=BY,
        now=NOON + timedelta(**later),
    )
    approved = office.policies.requests[REQUEST].approved
    assert approved is not None
    return approved.token_id


def test_an_approved_request_is_taken_up_by_its_token_for_a_time() -> None:
    office = Office()
    asked(office)
    token = approve(office)
    for _ in range(2):
        take(office, token)
    assert len(office.policies.overrides) == 1
    assert office.policies.tree("H100", NOON).subtree[str(LAB)] == 6
    assert office.policies.tree("H100", NOON + timedelta(days=3)).subtree[str(LAB)] == 0


def test_tokens_expire_and_are_nobody_elses() -> None:
    office = Office()
    asked(office)
    token = approve(office)
    with pytest.raises(EscalationTokenWrong):
        take(office, UUID(int=0))
    with pytest.raises(QuotaRequestUnknown):
        take(office, token, RIVAL)
    with pytest.raises(EscalationTokenWrong):
        take(office, token, hours=24)


def test_who_asks_does_not_approve_and_an_old_request_is_not_approved() -> None:
    office = Office()
    asked(office)
    with pytest.raises(PolicyNotYours):
        approve(office, DEAN)
    with pytest.raises(QuotaRequestClosed):
        approve(office, hours=24)
