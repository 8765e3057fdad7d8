"""Finance sees where money went and takes it along; people make tokens and stop them."""

from __future__ import annotations

import re
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.test import Client

from ledger import commands
from ledger.domain.ids import HoldId, LeaseId
from ledger.domain.money import Money, Rate
from ledger.domain.periods import Period
from ledger.domain.span import Window
from ledger.models import AccountRow, TokenRow
from ledger.queries import money
from tests.pages.reading import html
from tests.pages.world import BY, CONSUMER, OWNER, PLATFORM, World

pytestmark = pytest.mark.django_db
BID = UUID(int=4711)


@pytest.fixture
def period(world: World) -> str:
    """Charge one lease of two GPU-hours to the consumer, and return its month."""
    hour = world.now.replace(day=1, hour=0, minute=0, second=0)
    hold_id, lease_id = HoldId(uuid4()), LeaseId(uuid4())
    commands.place_hold(
        world.store,
        account_id=world.account_id,
        hold_id=hold_id,
        money=Money(5_000_000_000),
        purpose=f"bid:{BID}",
        by=BY,
        now=world.now,
    )
    commands.capture_usage(
        world.store,
        account_id=world.account_id,
        hold_id=hold_id,
        lease_id=lease_id,
        window=Window(hour, hour + timedelta(hours=1)),
        gpu_millis=7_200_000,
        price=Rate(2_000_000_000),
        fee_ppm=50_000,
        owner_millis=[(world.tenant(OWNER), 7_200_000)],
        platform_id=world.tenant(PLATFORM),
        cost_centre="CI-2100",
        by=BY,
        now=world.now,
    )
    world.settle()
    return str(Period.of(hour))


@pytest.fixture
def finance(world: World) -> Client:
    return world.member(CONSUMER, "finance")


def test_finance_sees_spend_debts_and_a_balance_of_zero(period: str, finance: Client) -> None:
    page = html(finance.get(f"/finance?period={period}").content)

    assert "CI-2100" in page
    assert "2.00 GPU-h in 1 lease" in page
    assert "$4.00" in page
    assert "$3.80" in page, "what is owed to the owner, after five per cent"
    assert "sums to zero" in page


def test_finance_is_warned_of_an_account_that_runs_low(
    world: World, period: str, finance: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(money, "LOW_WITHIN", timedelta(days=60))
    assert "runs low" not in finance.get(f"/finance?period={period}").content.decode()

    rows = AccountRow.objects.filter(pk=world.account_id)
    rows.update(available_nanos=3_990_000_000, total_nanos=4_990_000_000)
    page = finance.get("/finance").content.decode()

    assert "runs low: $3.99 can still be set aside" in page


def test_a_statement_opens_and_closes_with_its_lines_between(
    world: World, period: str, finance: Client
) -> None:
    page = finance.get(f"/finance/accounts/{world.account_id}?period={period}").content.decode()

    assert "$96.00" in page, "100 added, 4 charged"
    assert "\N{MINUS SIGN}$4.00" in page
    assert f'href="/bids/{BID}"' in page, "what money is set aside for"


def test_another_organisations_account_is_not_found(world: World, period: str) -> None:
    stranger = world.member(OWNER, "finance")

    assert stranger.get(f"/finance/accounts/{world.account_id}?period={period}").status_code == 404


@pytest.mark.parametrize("name", ["focus", "beancount", "gl"])
def test_a_month_is_exported_the_same_each_time(period: str, finance: Client, name: str) -> None:
    answers = [finance.get(f"/finance/export/{name}?period={period}") for _ in range(2)]
    first, again = (answer.getvalue() for answer in answers)

    assert first == again
    assert len(first) > 100
    assert re.fullmatch(
        rf'attachment; filename="offpeak-{name}-{period}-at-\d+\.\w+"',
        answers[0]["Content-Disposition"],
    )


@pytest.mark.parametrize("period", ["", "2026", "2026-13", "now"])
def test_a_month_that_is_none_is_not_exported(finance: Client, period: str) -> None:
    answer = finance.get("/finance/export/focus", {"period": period})

    assert answer.status_code == 422
    assert b"A period is a month such as 2026-11." in answer.content


def test_an_unknown_export_names_the_known_ones(finance: Client) -> None:
    answer = finance.get("/finance/export/pdf?period=2026-11")

    assert answer.status_code == 422
    assert b"Known are focus, gl, beancount, hledger, xlsx" in answer.content


def made(answer_text: str) -> str:
    found = re.search(r'id="token">(offp_[a-z]+_\w+)<', answer_text)
    assert found is not None
    return found[1]


def test_a_token_is_shown_once_works_and_can_be_stopped(world: World) -> None:
    person = world.member(CONSUMER, "consumer")

    answer = person.post(
        "/settings",
        {"token": str(uuid4()), "title": "nightly", "days": "30", "scopes": ["market:read"]},
    )
    world.settle()
    token = made(answer.content.decode())

    def me() -> int:
        called = Client().get("/api/v1/me", headers={"Authorization": f"Bearer {token}"})
        return called.status_code

    assert me() == 200
    page = person.get("/settings").content.decode()
    assert token not in page
    assert token[:16] in page
    row = TokenRow.objects.get()
    assert person.post(f"/settings/tokens/{row.token_id}/revoke").status_code == 302
    world.settle()
    assert me() == 401


def test_the_same_form_sent_twice_makes_one_token(world: World) -> None:
    person = world.member(CONSUMER, "consumer")
    sent = {"token": str(uuid4()), "title": "x", "days": "7", "scopes": ["market:read"]}

    person.post("/settings", sent)
    again = person.post("/settings", sent)
    world.settle()

    assert again.status_code == 422
    assert b"That token was made before" in again.content
    assert TokenRow.objects.count() == 1


def test_nobody_offers_themselves_more_than_their_roles(world: World) -> None:
    person = world.member(CONSUMER, "consumer")

    answer = person.post(
        "/settings", {"token": str(uuid4()), "title": "x", "days": "7", "scopes": ["admin"]}
    )

    assert answer.status_code == 422
    assert not TokenRow.objects.exists()


def test_an_owner_makes_a_token_for_the_agent_of_an_own_host_only(world: World) -> None:
    def ask(client: Client, host: UUID) -> int:
        return client.post("/settings", {"token": str(uuid4()), "host": str(host)}).status_code

    assert ask(world.member(OWNER, "owner"), world.host_id) == 200
    assert ask(world.member(CONSUMER, "owner"), world.host_id) == 422
    assert ask(world.member(PLATFORM, "operator"), world.host_id) == 422


def test_another_persons_token_is_not_found(world: World) -> None:
    world.member(CONSUMER, "consumer").post(
        "/settings",
        {"token": str(uuid4()), "title": "x", "days": "7", "scopes": ["market:read"]},
    )
    world.settle()
    path = f"/settings/tokens/{TokenRow.objects.get().token_id}/revoke"

    assert world.member(OWNER, "operator").post(path).status_code == 404
    assert world.member(CONSUMER, "finance").post(path).status_code == 404
    assert TokenRow.objects.get().revoked_at is None
