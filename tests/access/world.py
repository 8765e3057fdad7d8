"""Two organisations: one has something of every kind, the other has nothing but curiosity.

Everything is recorded as events, the contract between the parts, and read through the very
projections of the site. `ids` holds the first one's things by the name that routes give them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.utils import timezone

from bursting.domain.events import BurstIntended, InstanceId
from config.wiring import projections
from ledger import commands, webhooks
from ledger.access import Actor
from ledger.commands.exports import ask_export, finish_export
from ledger.domain import account_ids, tokens
from ledger.domain.dispute_events import Contested, DisputeOpened
from ledger.domain.disputes import dispute_of
from ledger.domain.event import Event
from ledger.domain.events import (
    AccountOpened,
    FundsAdded,
    HoldPlaced,
    OwnerUse,
    Posting,
    StorageCharged,
    UsageCaptured,
)
from ledger.domain.ids import (
    AccountId,
    BidId,
    EntryId,
    HoldId,
    HostId,
    InvitationId,
    LeaseId,
    MaintenanceId,
    OfferId,
    PaymentId,
    RefundId,
    SubscriberId,
    TenantId,
    TokenId,
    UserId,
)
from ledger.domain.invoice_events import (
    BillingDetailsSet,
    CreditedLine,
    CreditNoteAsked,
    CreditNoteIssued,
    InvoiceIssued,
    InvoiceLine,
    PartyDetails,
)
from ledger.domain.money import NANOS_PER_UNIT, Money, Rate
from ledger.domain.notices import To, notice_id_of
from ledger.domain.paper_events import StatementIssued, StatementLine
from ledger.domain.parties import PLATFORM_ID, ROLES, tenant_id_of
from ledger.domain.payout_events import BankDetailsProposed, PayoutRequested
from ledger.domain.periods import Period
from ledger.domain.returns import refund_hold
from ledger.domain.span import Window
from ledger.domain.tokens import SCOPES
from ledger.domain.usage_items import UsageItem
from ledger.domain.wallet_events import (
    MethodSaved,
    PayerKnown,
    PaymentRequested,
    PaymentSucceeded,
    RefundAsked,
)
from ledger.eventstore import default_store
from ledger.eventstore.port import Expect, Meta, NewEvent
from ledger.following import follow_projections
from ledger.models import Checkpoint, DeliveryRow, Person
from listings.domain.events import (
    Gpu,
    GpusListed,
    HostRegistered,
    InventoryReported,
    OfferPublished,
)
from listings.domain.maintenance_events import MaintenanceAnnounced
from marketplace.domain.facts.bid_events import BidRouted
from marketplace.domain.facts.events import (
    BidFilled,
    BidPlaced,
    GpuRequest,
    LeaseActivated,
    LeaseGranted,
    LeaseScheduled,
    LeaseStarting,
    RoundCleared,
    Share,
    Unmatched,
    Workload,
)
from marketplace.domain.facts.policy_events import (
    QuotaOverridden,
    QuotaRequestApproved,
    QuotaRequested,
    UnitPlaced,
)
from marketplace.domain.facts.price_events import LeasePriceProposed
from marketplace.domain.files.events import FolderKept
from marketplace.domain.secrets.events import SecretSet
from marketplace.domain.secrets.secret import secret_id_of
from marketplace.domain.spending.events import (
    SpendingBudgetSet,
    SpendingGrantAsked,
    Threshold,
)
from marketplace.domain.volumes.events import VolumeCreated
from marketplace.domain.volumes.terms import volume_id_of
from tests.access.conftest import Caller

UNITS = 1_000_000_000
MARK = "Victimised"
"""Is in every title of the first organisation; the second must never read it."""

H100 = "NVIDIA H100 80GB HBM3"
ASKED_SCOPES = [scope for scope in SCOPES if scope != "agent"]


@dataclass
class Party:
    """An organisation with one member in every role, a host and its agent."""

    slug: str
    caller: Caller
    agent: Caller
    ids: dict[str, UUID] = field(default_factory=dict)
    round_id: UUID = field(default_factory=uuid4)
    """Of the engine, so it is everybody's."""

    @property
    def private(self) -> list[str]:
        """Return what nobody else may read: ids, titles, beginnings of tokens."""
        return [*(str(each) for each in self.ids.values()), *self.marks]

    @property
    def marks(self) -> list[str]:
        """Return texts that only its own people may read."""
        return [f"{MARK} {self.slug}", f"someone@{self.slug}.example", self.caller.token[:16]]


def append(stream: str, *events: Event, by: Meta) -> None:
    """Record facts as if a command had decided them."""
    fresh = [NewEvent(uuid4(), event) for event in events]
    default_store().append(stream, fresh, expected=Expect.ANY, by=by)


def follow() -> None:
    """Bring every read model up to date; none may have stopped."""
    while follow_projections(default_store(), projections()):
        pass
    stopped = Checkpoint.objects.exclude(error="").values_list("name", "error")
    assert not list(stopped), list(stopped)


def found(slug: str) -> Party:
    """Set up an organisation with a host, an offer, an account, a bid, a lease, and quotas."""
    party = founded(slug)
    now, title = timezone.now(), f"{MARK} {slug}"
    by = Meta(actor="user:founder", tenant_id=tenant_id_of(slug))
    _trade(party, title, by, now)
    _pay(party, by, now)
    _top_up(party, title, by, now)
    _contest(party, by, now)
    _burst(party, title, by, now)
    _limit(party, title, by, now)
    _govern(party, title, by, now)
    _bring(party, title, by, now)
    _tell(party, title, by, now)
    _bill(party, title, by, now)
    _export(party, by, now)
    return party


def founded(slug: str) -> Party:
    """Set up an organisation with members, tokens and money, and nothing else."""
    now, store = timezone.now(), default_store()
    tenant_id = tenant_id_of(slug)
    by = Meta(actor="user:founder", tenant_id=tenant_id)
    title = f"{MARK} {slug}"
    user_id = UserId(Person.objects.create_user(f"someone@{slug}.example", title=title).id)
    unit = SubscriberId(uuid4())
    commands.register_tenant(store, slug=slug, title=title, currency="USD", by=by, now=now)
    commands.add_subscriber(
        store,
        tenant_id=tenant_id,
        subscriber_id=unit,
        title=title,
        cost_centre=title,
        by=by,
        now=now,
    )
    # A second operator, so that the member may be removed.
    for each in (user_id, UserId(Person.objects.create_user(f"other@{slug}.example").id)):
        commands.admit_member(
            store,
            tenant_id=tenant_id,
            user_id=each,
            roles=ROLES,
            subscriber_id=unit,
            by=by,
            now=now,
        )
    host_id = HostId(uuid4())
    caller = _token(tenant_id, user_id, None, by, now)
    agent = _token(tenant_id, None, host_id, by, now)
    party = Party(slug, caller, agent)
    party.ids |= {
        "tenant_id": tenant_id,
        "subscriber_id": unit,
        "user_id": user_id,
        "token_id": caller.token_id,
        "host_id": host_id,
        "invitation_id": _invitation(tenant_id, user_id, by, now),
        "account_id": _account(tenant_id, unit, title, by, now),
    }
    return party


def _token(
    tenant_id: TenantId, user_id: UserId | None, host_id: HostId | None, by: Meta, now: datetime
) -> Caller:
    token_id = TokenId(uuid4())
    text = tokens.write("user" if user_id else "host", os.urandom(32))
    terms: dict[str, Any] = {
        "token_id": token_id,
        "tenant_id": tenant_id,
        "written": tokens.read(text),
        "title": MARK,
        "expires_at": None,
        "by": by,
        "now": now,
    }
    if user_id is not None:
        commands.issue_token(default_store(), user_id=user_id, scopes=ASKED_SCOPES, **terms)
    else:
        assert host_id is not None
        commands.issue_host_token(default_store(), host_id=host_id, **terms)
    return Caller(tenant_id, user_id or UUID(int=0), token_id, text)


def _invitation(tenant_id: TenantId, user_id: UserId, by: Meta, now: datetime) -> InvitationId:
    invitation_id = InvitationId(uuid4())
    commands.invite_member(
        default_store(),
        tenant_id=tenant_id,
        invitation_id=invitation_id,
        user_id=UserId(Person.objects.create_user(f"invited@{tenant_id}.example").id),
        invited_by=user_id,
        roles=["consumer"],
        subscriber_id=None,
        by_mail=False,
        written=tokens.read(tokens.write("invite", os.urandom(32))),
        expires_at=now + timedelta(days=7),
        by=by,
        now=now,
    )
    return invitation_id


def _account(
    tenant_id: TenantId, unit: SubscriberId, title: str, by: Meta, now: datetime
) -> AccountId:
    account_id = account_ids.funds_account(unit, "USD")
    money = Money(1_000 * UNITS)
    cash = account_ids.cash_account(PLATFORM_ID, "USD")
    append(
        f"account-{account_id}",
        AccountOpened(
            account_id=account_id,
            tenant_id=tenant_id,
            subscriber_id=unit,
            kind="prepaid",
            title=title,
            currency="USD",
            overdraft_nanos=0,
            at=now,
        ),
        FundsAdded(
            account_id=account_id,
            entry_id=EntryId(uuid4()),
            money=money,
            reference=title,
            postings=(Posting(account_id, money.nanos), Posting(cash, -money.nanos)),
            at=now,
        ),
        by=by,
    )
    return account_id


def _contest(party: Party, by: Meta, now: datetime) -> None:
    """Let a charge on its account be contested, and another one that may be."""
    account_id, hold_id = AccountId(party.ids["account_id"]), HoldId(uuid4())
    tenant_id, lease_id = TenantId(party.ids["tenant_id"]), LeaseId(party.ids["lease_id"])
    fees = account_ids.fee_account(PLATFORM_ID, "USD")
    begins, money = now.replace(microsecond=0) - timedelta(hours=3), Money(10)
    placed = HoldPlaced(
        account_id=account_id, hold_id=hold_id, money=Money(UNITS), purpose="lease", at=now
    )
    charges = [
        UsageCaptured(
            account_id=account_id,
            hold_id=hold_id,
            entry_id=EntryId(uuid4()),
            lease_id=lease_id,
            window=Window(begins + hour, begins + hour + timedelta(hours=1)),
            gpu_millis=3_600_000,
            price=Rate(10),
            fee_ppm=1_000_000,
            owners=(OwnerUse(tenant_id, 3_600_000),),
            item=UsageItem(),
            charged=money,
            fee=money,
            cost_centre="",
            postings=(Posting(account_id, -money.nanos), Posting(fees, money.nanos)),
            at=now,
        )
        for hour in (timedelta(0), timedelta(hours=1))
    ]
    append(f"account-{account_id}", placed, *charges, by=by)
    dispute_id = dispute_of(charges[0].entry_id)
    opened = DisputeOpened(
        dispute_id=dispute_id,
        entry_id=charges[0].entry_id,
        account_id=account_id,
        tenant_id=tenant_id,
        lease_id=lease_id,
        window=charges[0].window,
        charged_millis=3_600_000,
        used_millis=0,
        money=money,
        contested=(Contested(fees, None, None, money),),
        reason="stood still",
        opened_by=UserId(party.ids["user_id"]),
        decide_by=now + timedelta(days=14),
        at=now,
    )
    append(f"dispute-{dispute_id}", opened, by=by)
    party.ids |= {"dispute_id": dispute_id, "entry_id": charges[1].entry_id}


def _pay(party: Party, by: Meta, now: datetime) -> None:
    """Let it be paid what it earned; a bank account waits to be confirmed."""
    tenant_id, payout_id, details_id = TenantId(party.ids["tenant_id"]), uuid4(), uuid4()
    payee_id = account_ids.earnings_account(tenant_id, "USD")
    transit = account_ids.transit_account(PLATFORM_ID, "USD")
    asked = PayoutRequested(
        account_id=payee_id,
        tenant_id=tenant_id,
        entry_id=EntryId(uuid4()),
        payout_id=payout_id,
        period="2026-W01",
        revision=0,
        cut_off=now.date(),
        money=Money(UNITS),
        owed_nanos=UNITS,
        later_nanos=0,
        held_back_nanos=0,
        set_aside_nanos=0,
        approvals_needed=1,
        requested_by=None,
        postings=(Posting(payee_id, -UNITS), Posting(transit, UNITS)),
        at=now,
    )
    proposed = BankDetailsProposed(
        account_id=payee_id,
        tenant_id=tenant_id,
        currency="USD",
        details_id=details_id,
        kind="iban",
        masked="DE… 3000",
        usable_from=now,
        by_user=UserId(party.ids["user_id"]),
        at=now,
    )
    append(f"payee-{payee_id}", asked, proposed, by=by)
    party.ids |= {
        "payee_id": payee_id,
        "payout_id": payout_id,
        "details_id": details_id,
        "file_id": uuid4(),
        "plan_id": uuid4(),
    }


def _top_up(party: Party, title: str, by: Meta, now: datetime) -> None:
    """Let it top up by a card that is kept, and ask for some of it back."""
    ids, account_id = party.ids, AccountId(party.ids["account_id"])
    ids |= {"payment_id": uuid4(), "refund_id": uuid4(), "method": uuid4()}
    user_id, money, payment_id = UserId(ids["user_id"]), Money(UNITS), PaymentId(ids["payment_id"])
    refund_id = RefundId(ids["refund_id"])
    held = HoldPlaced(
        account_id=account_id,
        hold_id=refund_hold(refund_id),
        money=money,
        purpose="refund",
        at=now,
    )
    append(f"account-{account_id}", held, by=by)
    append(
        f"wallet-{account_id}",
        PayerKnown(account_id=account_id, payer=title, at=now),
        MethodSaved(account_id=account_id, method=str(ids["method"]), label=title, at=now),
        PaymentRequested(
            account_id=account_id,
            payment_id=payment_id,
            money=money,
            way="saved",
            method=str(ids["method"]),
            asked_by=user_id,
            at=now,
        ),
        PaymentSucceeded(
            account_id=account_id, payment_id=payment_id, intent=title, money=money, at=now
        ),
        RefundAsked(
            account_id=account_id,
            refund_id=refund_id,
            money=money,
            reason=title,
            asked_by=user_id,
            at=now,
        ),
        by=by,
    )


def _limit(party: Party, title: str, by: Meta, now: datetime) -> None:
    """Give it a budget, and ask for a grant that a second person decides."""
    ids = party.ids
    ids |= {"budget_id": uuid4(), "grant_id": uuid4()}
    tenant_id, unit = TenantId(ids["tenant_id"]), str(ids["subscriber_id"])
    append(
        f"spending-{tenant_id}",
        SpendingBudgetSet(
            tenant_id=tenant_id,
            budget_id=ids["budget_id"],
            title=title,
            scope="unit",
            subject=unit,
            amount=Money(NANOS_PER_UNIT),
            period="year",
            roll_over="none",
            unused_ppm=0,
            thresholds=(Threshold(800_000, "notify"),),
            zone="UTC",
            by=None,
            at=now,
        ),
        SpendingGrantAsked(
            tenant_id=tenant_id,
            budget_id=ids["budget_id"],
            grant_id=ids["grant_id"],
            money=Money(NANOS_PER_UNIT),
            starts_at=now,
            until=now + timedelta(hours=1),
            why=title,
            alone=False,
            by=UserId(uuid4()),
            at=now,
        ),
        by=by,
    )


def _govern(party: Party, title: str, by: Meta, now: datetime) -> None:
    """Place its unit, override its quota, and approve a request: its token is the request's id."""
    ids = party.ids
    ids |= {"request_id": uuid4(), "override_id": uuid4()}
    unit, tenant_id = SubscriberId(ids["subscriber_id"]), TenantId(ids["tenant_id"])
    ends_at = now + timedelta(days=1)
    append(
        "governance-main",
        UnitPlaced(market="main", subscriber_id=unit, tenant_id=tenant_id, cohort=None, at=now),
        QuotaOverridden(
            market="main",
            override_id=ids["override_id"],
            node=str(unit),
            gpu_class="B200",
            nominal=3,
            borrowing=None,
            lending=None,
            starts_at=now,
            ends_at=ends_at,
            request_id=None,
            at=now,
            why=title,
        ),
        QuotaRequested(
            market="main",
            request_id=ids["request_id"],
            tenant_id=tenant_id,
            subscriber_id=unit,
            user_id=UserId(ids["user_id"]),
            gpu_class="any",
            nominal=3,
            starts_at=now,
            ends_at=ends_at,
            why=title,
            expires_at=ends_at,
            at=now,
        ),
        QuotaRequestApproved(
            market="main",
            request_id=ids["request_id"],
            token_id=ids["request_id"],
            expires_at=ends_at,
            at=now,
        ),
        by=by,
    )


def _statement(party: Party, title: str, now: datetime) -> StatementIssued:
    """Return the statement of a month of a party's account."""
    ids = party.ids
    ids["paper_id"] = uuid4()
    return StatementIssued(
        issuer_id=PLATFORM_ID,
        statement_id=ids["paper_id"],
        number=f"STM-2026-{int(ids['paper_id']) % 10**12}",
        account_id=AccountId(ids["account_id"]),
        account_kind="chargeback",
        account_title=title,
        tenant_id=TenantId(ids["tenant_id"]),
        subscriber_id=SubscriberId(ids["subscriber_id"]),
        issuer=PartyDetails(name="Offpeak"),
        party=PartyDetails(name=title),
        period="2026-01",
        currency="USD",
        opening_nanos=0,
        lines=(StatementLine(kind="usage", title=title, nanos=-UNITS),),
        closing_nanos=-UNITS,
        held_nanos=0,
        as_of=1,
        replaces="",
        by_user=None,
        at=now,
    )


def _bill(party: Party, title: str, by: Meta, now: datetime) -> None:
    """Issue an invoice, and credit part of it: the number is an id of its own that counts."""
    ids = party.ids
    ids |= {"credit_id": uuid4(), "number": UUID(f"{uuid4().hex[:20]}{1:012d}")}
    invoice_id, number = uuid4(), str(ids["number"])
    account_id, issuer = AccountId(ids["account_id"]), PartyDetails(name="Offpeak")
    credited = (CreditedLine(line_id="001", nanos=UNITS),)
    user_id = UserId(ids["user_id"])
    invoice = InvoiceIssued(
        issuer_id=PLATFORM_ID,
        invoice_id=invoice_id,
        number=number,
        kind="internal",
        account_id=account_id,
        tenant_id=TenantId(ids["tenant_id"]),
        subscriber_id=SubscriberId(ids["subscriber_id"]),
        issuer=issuer,
        payer=PartyDetails(name=title),
        period="2026-01",
        currency="USD",
        lines=(
            InvoiceLine(
                line_id="001",
                category="use",
                sku=H100,
                title=title,
                quantity="1.000",
                unit="GPU-hours",
                period="2026-01",
                corrects="",
                exact_nanos=3 * UNITS,
                nanos=3 * UNITS,
            ),
        ),
        taxes=(),
        exact_nanos=3 * UNITS,
        net_nanos=3 * UNITS,
        tax_nanos=0,
        total_nanos=3 * UNITS,
        due_days=30,
        as_of=1,
        by_user=None,
        at=now,
    )
    asked = CreditNoteAsked(
        issuer_id=PLATFORM_ID,
        credit_id=ids["credit_id"],
        invoice_id=invoice_id,
        lines=credited,
        reason=title,
        asked_by=user_id,
        at=now,
    )
    note = CreditNoteIssued(
        issuer_id=PLATFORM_ID,
        credit_id=ids["credit_id"],
        invoice_id=invoice_id,
        number=str(UUID(f"{uuid4().hex[:20]}{1:012d}")),
        account_id=account_id,
        currency="USD",
        lines=credited,
        taxes=(),
        net_nanos=UNITS,
        tax_nanos=0,
        total_nanos=UNITS,
        reason=title,
        asked_by=user_id,
        approved_by=user_id,
        at=now,
    )
    append(f"invoices-{PLATFORM_ID}", invoice, asked, note, by=by)
    append(f"statements-{PLATFORM_ID}", _statement(party, title, now), by=by)
    details = BillingDetailsSet(
        party_id=ids["tenant_id"],
        tenant_id=TenantId(ids["tenant_id"]),
        details=PartyDetails(name=title),
        scheme="none",
        due_days=30,
        issues_by_itself=False,
        by_user=user_id,
        at=now,
    )
    append(f"billing-{details.party_id}", details, by=by)


def _bring(party: Party, title: str, by: Meta, now: datetime) -> None:
    """Keep a folder, a secret and a volume."""
    folder_id = party.ids["folder_id"] = uuid4()
    kept = FolderKept(
        folder_id=folder_id,
        tenant_id=TenantId(party.ids["tenant_id"]),
        manifest=folder_id.hex * 2,
        title=title,
        files=1,
        size_bytes=1,
        at=now,
    )
    append(f"folder-{folder_id}", kept, by=by)
    tenant_id = TenantId(party.ids["tenant_id"])
    secret_id = party.ids["secret_id"] = secret_id_of(tenant_id, "focus")
    known = SecretSet(
        secret_id=secret_id, tenant_id=tenant_id, secret="focus", version=1, user_id=None, at=now
    )
    append(f"secret-{secret_id}", known, by=by)
    name = party.ids["volume"] = uuid4()
    volume = VolumeCreated(
        volume_id=volume_id_of(tenant_id, str(name)),
        tenant_id=tenant_id,
        subscriber_id=SubscriberId(party.ids["subscriber_id"]),
        account_id=AccountId(party.ids["account_id"]),
        cost_centre=title,
        volume=str(name),
        quota_bytes=2**30,
        nanos_per_gib_month=1,
        currency="USD",
        expires_at=now + timedelta(days=30),
        user_id=None,
        at=now,
    )
    append(f"volume-{volume.volume_id}", volume, by=by)
    begins = now.replace(microsecond=0)
    stored = StorageCharged(
        account_id=volume.account_id,
        entry_id=EntryId(uuid4()),
        volume_id=volume.volume_id,
        title=title,
        window=Window(begins - timedelta(hours=1), begins),
        byte_seconds=2**42,
        nanos_per_gib_month=1,
        carried=0,
        charged=Money(1),
        cost_centre=title[:60],
        postings=(
            Posting(volume.account_id, -1),
            Posting(account_ids.fee_account(PLATFORM_ID, "USD"), 1),
        ),
        at=now,
    )
    append(f"account-{volume.account_id}", stored, by=by)


def _tell(party: Party, title: str, by: Meta, now: datetime) -> None:
    """Tell its people something, and post it to a webhook of theirs."""
    tenant_id, to = TenantId(party.ids["tenant_id"]), To(tenant_id=TenantId(party.ids["tenant_id"]))
    told = party.ids["notice_id"] = notice_id_of(to, "money", "low")
    commands.give_notice(
        default_store(),
        to=to,
        topic="money",
        key="low",
        title=title,
        body=title,
        by=by,
        now=now,
    )
    actor = Actor(
        tenant_id=tenant_id, user_id=UserId(party.ids["user_id"]), roles=frozenset({"operator"})
    )
    hook = party.ids["webhook_id"] = uuid4()
    url = f"https://hooks.example/{party.slug}"
    webhooks.add_webhook(actor, webhook_id=hook, url=url, topics=[], now=now)
    sent = party.ids["delivery_id"] = uuid4()
    DeliveryRow.objects.create(
        delivery_id=sent,
        tenant_id=tenant_id,
        webhook_id=hook,
        receiver=str(hook),
        notice_id=told,
        topic="money",
        title=title,
        body="{}",
        due_at=now,
        created_at=now,
    )


def _export(party: Party, by: Meta, now: datetime) -> None:
    """Ask for its month as a file, which is made."""
    export_id = party.ids["export_id"] = uuid4()
    party.ids["plan_id"] = uuid4()  # the platform's alone: nobody else has one
    store = default_store()
    ask_export(
        store,
        export_id=export_id,
        tenant_id=TenantId(party.ids["tenant_id"]),
        everything=False,
        name="gl",
        period=Period.of(now),
        position=store.head(),
        user_id=UserId(party.ids["user_id"]),
        by=by,
        now=now,
    )
    finish_export(
        store, export_id, version="none", rows=0, sums=[], size=0, sha256="", by=by, now=now
    )


def _trade(party: Party, title: str, by: Meta, now: datetime) -> None:
    """List the host's GPUs, bid for one and lease it."""
    ids = party.ids
    offer = _list_host(party, title, by, now)
    lease_id, host_id = LeaseId(uuid4()), HostId(ids["host_id"])
    window = Window(now - timedelta(minutes=5), now + timedelta(hours=2))
    share = Share(
        offer_id=offer.offer_id,
        host_id=host_id,
        owner_id=offer.tenant_id,
        gpu_uuids=(f"GPU-{party.slug}-1",),
        notice_seconds=offer.notice_seconds,
        reclaim_fee_ppm=0,
        source="local",
    )
    leased, waiting = _bid(party, title, window, now), _bid(party, title, window, now)
    ids |= {"bid_id": waiting.bid_id, "lease_id": lease_id, "offer_id": offer.offer_id}
    for bid in (leased, waiting):
        money = Money(10 * UNITS)
        held = HoldPlaced(
            account_id=bid.account_id, hold_id=bid.hold_id, money=money, purpose="bid", at=now
        )
        append(f"account-{bid.account_id}", held, by=by)
        append(f"bid-{bid.bid_id}", bid, by=by)
        routed = BidRouted(
            bid_id=bid.bid_id, market="main", because="nowhere", considered=(), at=now
        )
        append(f"route-{bid.bid_id}", routed, by=by)
    granted = LeaseGranted(
        lease_id=lease_id,
        bid_id=leased.bid_id,
        market="main",
        round_id=party.round_id,
        shares=(share,),
        gpu_model=H100,
        window=window,
        price=leased.limit,
        at=now,
    )
    cleared = RoundCleared(
        market="main",
        round_id=granted.round_id,
        lane="round",
        through=int(default_store().head()),
        bids=2,
        offers=1,
        grants=1,
        gpus=1,
        unmatched=(Unmatched(bid_id=waiting.bid_id, reason="limit"),),
        price_low=granted.price.nanos_per_gpu_hour,
        price_high=granted.price.nanos_per_gpu_hour,
        rule="test",
        at=now,
    )
    append("market-main", cleared, granted, by=by)
    append(
        f"bid-{leased.bid_id}", BidFilled(bid_id=leased.bid_id, lease_id=lease_id, at=now), by=by
    )
    scheduled = LeaseScheduled(
        lease_id=lease_id,
        bid_id=leased.bid_id,
        tenant_id=leased.tenant_id,
        subscriber_id=leased.subscriber_id,
        user_id=leased.user_id,
        account_id=leased.account_id,
        hold_id=leased.hold_id,
        market="main",
        shares=(share,),
        gpu_model=H100,
        window=window,
        price=leased.limit,
        fee_ppm=50_000,
        service_class="on-demand",
        workload=leased.workload,
        cost_centre=title,
        at=now,
    )
    begun = (LeaseStarting(lease_id=lease_id, at=now), LeaseActivated(lease_id=lease_id, at=now))
    append(f"lease-{lease_id}", scheduled, *begun, by=by)
    proposed = LeasePriceProposed(
        lease_id=lease_id,
        market="main",
        proposal_id=uuid4(),
        tenant_id=scheduled.tenant_id,
        user_id=None,
        of=(scheduled.tenant_id, TenantId(uuid4())),
        before=scheduled.price,
        price=Rate(3 * UNITS),
        since=now + timedelta(hours=1),
        answer_by=now + timedelta(minutes=30),
        why="",
        at=now,
    )
    ids["proposal_id"] = proposed.proposal_id
    append(f"lease-prices-{lease_id}", proposed, by=by)


def _burst(party: Party, title: str, by: Meta, now: datetime) -> None:
    """Rent an instance for the waiting bid."""
    instance_id = InstanceId(uuid4())
    party.ids["instance_id"] = instance_id
    intended = BurstIntended(
        instance_id=instance_id,
        bid_id=BidId(party.ids["bid_id"]),
        tenant_id=TenantId(party.ids["tenant_id"]),
        owner_id=PLATFORM_ID,
        market="main",
        cloud=title,
        instance_type="p5.48xlarge",
        zone="a",
        spot=False,
        region="us-east-1",
        token=str(instance_id),
        gpu_model=H100,
        gpus=8,
        price=Rate(3 * UNITS),
        floor=Rate(3 * UNITS),
        ttl_seconds=7_200,
        worst=Money(48 * UNITS),
        attempt=1,
        at=now,
    )
    append(f"burst-{instance_id}", intended, by=by)


def _list_host(party: Party, title: str, by: Meta, now: datetime) -> OfferPublished:
    host_id, tenant_id = HostId(party.ids["host_id"]), TenantId(party.ids["tenant_id"])
    gpus = tuple(Gpu(f"GPU-{party.slug}-{n}", H100, 81_559, "9.0", "580.65.06") for n in (1, 2, 3))
    offer = OfferPublished(
        offer_id=OfferId(uuid4()),
        tenant_id=tenant_id,
        host_id=host_id,
        market="main",
        region="eu",
        labels=(),
        gpus=gpus[:2],
        windows=(Window(now - timedelta(hours=1), now + timedelta(hours=8)),),
        weekly=None,
        floor=Rate(UNITS),
        lease_min_seconds=900,
        notice_seconds=60,
        reclaim_fee_ppm=0,
        workload_kinds=(),
        isolation="whole",
        source="local",
        reserved_for=None,
        at=now,
    )
    registered = HostRegistered(
        host_id=host_id,
        tenant_id=tenant_id,
        title=title,
        market="main",
        region="eu",
        labels=(),
        source="local",
        at=now,
    )
    listed = GpusListed(host_id=host_id, offer=offer, at=now)
    reported = InventoryReported(host_id=host_id, gpus=gpus, at=now)
    planned = MaintenanceAnnounced(
        host_id=host_id,
        maintenance_id=MaintenanceId(uuid4()),
        window=Window(now + timedelta(hours=6), now + timedelta(hours=7)),
        gpu_uuids=(),
        reason=title,
        at=now,
    )
    party.ids["maintenance_id"] = planned.maintenance_id
    append(f"host-{host_id}", registered, reported, listed, planned, by=by)
    append(f"offer-{offer.offer_id}", offer, by=by)
    return offer


def _bid(party: Party, title: str, window: Window, now: datetime) -> BidPlaced:
    bid_id = BidId(uuid4())
    return BidPlaced(
        bid_id=bid_id,
        tenant_id=TenantId(party.ids["tenant_id"]),
        subscriber_id=SubscriberId(party.ids["subscriber_id"]),
        user_id=UserId(party.ids["user_id"]),
        account_id=AccountId(party.ids["account_id"]),
        hold_id=HoldId(bid_id),
        market="main",
        request=GpuRequest(models=(H100,)),
        gpus=1,
        placement="same-host",
        duration_seconds=3_600,
        earliest_start=window.starts_at,
        deadline=window.ends_at,
        limit=Rate(2 * UNITS),
        service_class="on-demand",
        patience="patient",
        workload=Workload(kind="batch", command=("echo", title)),
        cost_centre=title,
        burst_allowed=False,
        at=now,
    )
