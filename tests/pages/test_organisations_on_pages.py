"""An operator sets up organisations, units, people, accounts; people join by a link."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core import mail
from django.test import Client, override_settings
from django.utils import timezone

from config.env import Env
from config.site.parts import paging as parts
from config.web import visitors
from ledger import commands
from ledger.domain.account_ids import funds_account
from ledger.domain.events import MemberInvited
from ledger.domain.ids import SubscriberId, UserId
from ledger.domain.parties import tenant_id_of
from ledger.eventstore.port import Position
from ledger.inviting import AddressNotProved, person_to_admit
from ledger.models import AccountRow, InvitationRow, MemberRow, Person, SubscriberRow, TenantRow
from tests.pages.world import BY, CONSUMER, OWNER, PLATFORM, World

pytestmark = pytest.mark.django_db
PATH = "/settings/organisations"
PASSWORD = "slow-green-harbour-91"


@pytest.fixture
def boss(world: World) -> Client:
    return world.member(PLATFORM, "operator")


def at(world: World, slug: str) -> str:
    return f"{PATH}/{world.tenant(slug)}"


def invitation(email: str = "eve@new.example", *roles: str, **more: str) -> dict[str, Any]:
    said: dict[str, Any] = {
        "do": "invite",
        "invite-token": str(uuid4()),
        "invite-email": email,
        "invite-roles": list(roles or ("consumer",)),
        "invite-days": "7",
        "invite-unit": "",
    }
    return said | more


def link_in(answer: Any) -> str:
    found = re.search(r"/invitations/offp_invite_\w+", answer.content.decode())
    assert found is not None, answer.content.decode()
    return found[0]


def joined(link: str, password: str = PASSWORD, title: str = "Eve") -> tuple[Client, Any]:
    """Open a link in a fresh browser and fill in what it asks for."""
    browser = Client()
    opened = browser.get(link)
    assert (opened.status_code, opened["Location"]) == (302, "/invitations/")
    said = {"title": title, "password": password, "again": password}
    return browser, browser.post("/invitations/", said)


def test_an_operator_sets_up_an_organisation_that_can_bid(world: World, boss: Client) -> None:
    made = boss.post(
        PATH,
        {"token": str(uuid4()), "title": "Nova <b>Labs</b>", "slug": "nova", "currency": "USD"},
    )
    world.settle()
    here, tenant_id = at(world, "nova"), tenant_id_of("nova")
    assert made.status_code == 302 and made["Location"].startswith(here)
    unit = {
        "do": "unit",
        "unit-token": str(uuid4()),
        "unit-title": "Vision <script>",
        "unit-cost_centre": "N-1",
    }
    for _ in range(2):
        assert boss.post(here, unit).status_code == 302
    world.settle()
    row = SubscriberRow.objects.get(tenant_id=tenant_id)
    opened = boss.post(
        here,
        {
            "do": "account",
            "account-token": str(uuid4()),
            "account-unit": str(row.subscriber_id),
            "account-kind": "prepaid",
            "account-overdraft": "0.00",
        },
    )
    world.settle()
    account = funds_account(SubscriberId(row.subscriber_id), "USD")
    assert opened.status_code == 302, opened.content.decode()
    funds = {
        "do": "funds",
        "funds-token": str(uuid4()),
        "funds-amount": "50.00",
        "funds-reference": "transfer 1",
    }
    for _ in range(2):
        assert boss.post(f"{here}/accounts/{account}", funds).status_code == 302
    world.settle()

    assert AccountRow.objects.get(pk=account).available_nanos == 50_000_000_000
    page = boss.get(here).content.decode()
    assert "Vision &lt;script&gt;" in page and "Vision <script>" not in page
    assert "Nova &lt;b&gt;Labs&lt;/b&gt;" in page
    again = boss.post(f"{here}/accounts/{account}", funds | {"funds-token": str(uuid4())})
    assert again.status_code == 422
    assert "A payment with this reference was credited" in again.content.decode()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"slug": "A!"}, "3 to 40 lower-case letters"),
        ({"slug": CONSUMER}, "Another organisation has that slug"),
        ({"title": ""}, "This field is required"),
        ({"currency": "usd"}, "currency"),
    ],
)
def test_a_wrong_field_is_told_beside_it(
    world: World, boss: Client, said: dict[str, str], told: str
) -> None:
    form = {"token": str(uuid4()), "title": "Nova", "slug": "nova", "currency": "USD"}
    before = TenantRow.objects.count()

    answer = boss.post(PATH, form | said)
    world.settle()

    assert answer.status_code == 422
    wrong = rf'id="id_{next(iter(said))}-error".*?{re.escape(told)}'
    assert re.search(wrong, answer.content.decode(), re.DOTALL)
    assert TenantRow.objects.count() == before


def test_a_link_makes_a_person_and_works_once(world: World, boss: Client) -> None:
    answer = boss.post(at(world, CONSUMER), invitation("Eve@new.example", "consumer", "finance"))
    link = link_in(answer)
    world.settle()
    assert link not in boss.get(at(world, CONSUMER)).content.decode(), "shown once"

    browser, landed = joined(link)
    world.settle()

    assert landed.status_code == 302 and landed["Location"].startswith("/?after=")
    page = browser.get("/settings").content.decode()
    assert "Eve, consumer, finance at Cirrus" in page
    assert Client().login(email="eve@new.example", password=PASSWORD)
    used = Client().get(link)
    assert used.status_code == 409 and "accepted already" in used.content.decode()


def test_only_the_hash_of_a_link_is_kept(world: World, boss: Client) -> None:
    secret = link_in(boss.post(at(world, CONSUMER), invitation())).rsplit("/", 1)[1]
    world.settle()

    events = [each for each in world.store.read_all(limit=10_000).events if secret in repr(each)]
    assert events == []
    row = InvitationRow.objects.get()
    assert secret not in repr(row.__dict__) and len(row.sha256) == 64


@pytest.mark.parametrize("why", ["revoked", "expired", "guessed", "never opened"])
def test_what_lets_nobody_in_has_a_page_that_says_so(world: World, boss: Client, why: str) -> None:
    link = link_in(boss.post(at(world, CONSUMER), invitation()))
    world.settle()
    browser, row = Client(), InvitationRow.objects.get()
    opened = Client()
    opened.get(link)
    if why == "revoked":
        boss.post(f"{at(world, CONSUMER)}/invitations/{row.invitation_id}/revoke")
        world.settle()
    elif why == "expired":
        InvitationRow.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    said = {
        "revoked": "was taken back",
        "expired": "has expired",
        "guessed": "There is no such invitation",
        "never opened": "There is no such invitation",
    }[why]
    address = {"guessed": link[:-1] + ("a" if link[-1] != "a" else "b")}.get(why, link)

    answer = browser.get("/invitations/" if why == "never opened" else address)

    assert answer.status_code in (404, 409)
    assert said in answer.content.decode()
    if why in ("revoked", "expired"):
        late = opened.post(
            "/invitations/", {"title": "Eve", "password": PASSWORD, "again": PASSWORD}
        )
        assert late.status_code == 409
        assert not Person.objects.get(pk=row.user_id).has_usable_password()
        assert not MemberRow.objects.filter(user_id=row.user_id).exists()


def test_a_revocation_that_the_rows_do_not_show_yet_holds_too(world: World, boss: Client) -> None:
    link = link_in(boss.post(at(world, CONSUMER), invitation()))
    world.settle()
    row = InvitationRow.objects.get()
    boss.post(f"{at(world, CONSUMER)}/invitations/{row.invitation_id}/revoke")

    _, late = joined(link)

    assert late.status_code == 409
    assert not Person.objects.get(pk=row.user_id).has_usable_password()


def test_a_weak_password_is_told_beside_it_and_the_link_still_works(
    world: World, boss: Client
) -> None:
    link = link_in(boss.post(at(world, CONSUMER), invitation()))
    world.settle()

    _, weak = joined(link, "password")
    assert weak.status_code == 422
    assert "too common" in weak.content.decode()
    _, strong = joined(link)
    assert strong.status_code == 302


def test_who_has_a_log_in_keeps_it_and_signs_in_to_join(world: World, boss: Client) -> None:
    owner = world.member(OWNER, "owner")
    person = Person.objects.get(email="owner@aurora.example")
    link = link_in(boss.post(at(world, CONSUMER), invitation(person.email)))
    world.settle()

    stranger = Client()
    page = stranger.get(link, follow=True).content.decode()
    assert "Sign in to join" in page and 'name="password"' not in page
    taken = stranger.post("/invitations/", {"title": "x", "password": PASSWORD, "again": PASSWORD})
    assert taken.status_code == 409
    person.refresh_from_db()
    assert not person.check_password(PASSWORD)

    assert owner.get(link).status_code == 302
    assert owner.post("/invitations/").status_code == 302
    world.settle()
    assert "at Cirrus" in owner.get("/settings").content.decode()


def test_a_link_for_one_is_none_for_another_who_is_signed_in(world: World, boss: Client) -> None:
    link = link_in(boss.post(at(world, CONSUMER), invitation()))
    world.settle()
    other = world.member(OWNER, "owner")
    other.get(link)

    for answer in (other.get("/invitations/"), other.post("/invitations/")):
        assert answer.status_code == 403
        assert "another address" in answer.content.decode()


def test_an_operator_looks_after_their_own_organisation_alone(world: World) -> None:
    mine = world.member(CONSUMER, "operator")

    assert mine.get(PATH)["Location"] == at(world, CONSUMER)
    assert mine.get(at(world, CONSUMER)).status_code == 200
    assert "Organisations" in mine.get("/settings").content.decode()
    for slug in (OWNER, PLATFORM):
        assert mine.get(at(world, slug)).status_code == 404
        sent = mine.post(at(world, slug), invitation("me@again.example", "operator"))
        assert sent.status_code == 404
    world.settle()
    assert not InvitationRow.objects.exists()
    assert mine.post(PATH, {"title": "Nova", "slug": "nova", "currency": "USD"}).status_code == 302
    world.settle()
    assert not TenantRow.objects.filter(slug="nova").exists()


@pytest.mark.parametrize("role", ["consumer", "owner", "finance", "auditor"])
def test_others_look_after_nothing(world: World, role: str) -> None:
    for slug in (CONSUMER, PLATFORM):
        client = world.member(slug, role)
        assert client.get(PATH).status_code == 403
        assert client.get(at(world, CONSUMER)).status_code in (403, 404)
        assert client.post(at(world, CONSUMER), invitation()).status_code in (403, 404)


def test_a_tenants_operator_gives_themselves_no_money(world: World) -> None:
    mine, account = world.member(CONSUMER, "operator"), world.account_id
    here = f"{at(world, CONSUMER)}/accounts/{account}"
    funds = {
        "do": "funds",
        "funds-token": str(uuid4()),
        "funds-amount": "5",
        "funds-reference": "gift",
    }
    opening = {
        "do": "account",
        "account-token": str(uuid4()),
        "account-unit": str(world.unit_id),
        "account-kind": "chargeback",
        "account-overdraft": "",
    }

    assert mine.post(here, funds).status_code == 403
    assert mine.post(at(world, CONSUMER), opening).status_code == 403
    raised = mine.post(here, budget("100"))
    assert raised.status_code == 422
    assert "Only finance people and operators of the platform" in raised.content.decode()
    world.settle()
    row = AccountRow.objects.get(pk=account)
    assert (row.available_nanos, row.overdraft_nanos) == (100_000_000_000, 0)


def budget(amount: str) -> dict[str, str]:
    return {"do": "budget", "budget-token": str(uuid4()), "budget-overdraft": amount}


def test_a_budget_is_raised_by_the_platform_and_lowered_by_its_organisation(
    world: World, boss: Client
) -> None:
    mine = world.member(CONSUMER, "operator")
    here = f"{at(world, CONSUMER)}/accounts/{world.account_id}"

    assert boss.post(here, budget("100")).status_code == 302
    assert mine.post(here, budget("40")).status_code == 302
    assert mine.post(here, budget("41")).status_code == 422
    assert boss.post(here, budget("")).status_code == 422, "a wallet has a limit"
    world.settle()

    assert AccountRow.objects.get(pk=world.account_id).overdraft_nanos == 40_000_000_000


def test_roles_change_and_the_last_operator_stays(world: World) -> None:
    mine = world.member(CONSUMER, "operator")
    me = Person.objects.get(email="operator@cirrus.example")
    here = f"{at(world, CONSUMER)}/members/{me.id}"

    def roles(*which: str) -> Any:
        return mine.post(here, {"token": str(uuid4()), "roles": which, "unit": ""})

    last = roles("consumer")
    assert last.status_code == 422 and "must keep one operator" in last.content.decode()
    assert mine.post(f"{here}/remove").status_code == 409
    assert roles().status_code == 422
    world.member(CONSUMER, "operator", "finance")
    given_up = roles("consumer")
    world.settle()

    assert given_up["Location"].startswith("/settings?")
    assert mine.get("/settings").status_code == 200
    assert mine.get(at(world, CONSUMER)).status_code == 403


def test_an_invitation_goes_by_mail_and_is_shown_to_nobody(world: World, boss: Client) -> None:
    env = Env(mail_host="mail.example", mail_from="offpeak@market.example")
    with override_settings(ENV=env):
        sent = boss.post(at(world, CONSUMER), invitation(**{"invite-send": "mail"}))
        world.settle()
        assert sent.status_code == 302, sent.content.decode()
        [letter] = mail.outbox
        found = re.search(r"/invitations/offp_invite_\w+", str(letter.body))
        assert letter.to == ["eve@new.example"] and found is not None
        assert found[0] not in boss.get(sent["Location"]).content.decode()
        joined(found[0])
    assert Person.objects.get(email="eve@new.example").vouched_by is None


def test_a_mail_that_cannot_be_sent_leaves_no_invitation(
    world: World, boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ConnectionRefusedError("no")

    monkeypatch.setattr("django.core.mail.EmailMessage.send", fail)
    env = Env(mail_host="mail.example", mail_from="offpeak@market.example")
    with override_settings(ENV=env):
        sent = boss.post(at(world, CONSUMER), invitation(**{"invite-send": "mail"}))
    world.settle()

    assert sent.status_code == 422
    assert "did not take the invitation" in sent.content.decode()
    assert InvitationRow.objects.get().revoked_at is not None


def test_a_log_in_made_by_one_organisations_link_is_admitted_nowhere_else_unasked(
    world: World, boss: Client
) -> None:
    """An operator may open a link themselves, and so hold a log-in in somebody else's name."""
    mine = world.member(CONSUMER, "operator")
    link = link_in(mine.post(at(world, CONSUMER), invitation("chief@aurora.example")))
    world.settle()
    joined(link)
    world.settle()

    with pytest.raises(AddressNotProved):
        person_to_admit("chief@aurora.example", world.tenant(OWNER))
    person_to_admit("chief@aurora.example", world.tenant(CONSUMER))


def test_whoever_belongs_to_others_gets_no_password_by_a_link(world: World) -> None:
    """Admitted elsewhere, but not signed in yet: a link of a stranger makes no log-in for them."""
    person = Person.objects.create_user("new@aurora.example")
    commands.admit_member(
        world.store,
        tenant_id=world.tenant(OWNER),
        user_id=UserId(person.id),
        roles=["operator"],
        subscriber_id=None,
        by=BY,
        now=world.now,
    )
    mine = world.member(CONSUMER, "operator")
    link = link_in(mine.post(at(world, CONSUMER), invitation(person.email)))
    world.settle()

    _, taken = joined(link)

    assert taken.status_code == 409
    person.refresh_from_db()
    assert not person.has_usable_password()


def test_the_same_form_twice_makes_one_invitation(world: World, boss: Client) -> None:
    said = invitation()
    link_in(boss.post(at(world, CONSUMER), said))
    world.settle()

    again = boss.post(at(world, CONSUMER), said)
    world.settle()

    assert again.status_code == 422 and "/invitations/offp_invite_" not in again.content.decode()
    invited = [
        each.event
        for each in world.store.read_all(limit=10_000).events
        if isinstance(each.event, MemberInvited)
    ]
    assert len(invited) == 1


@pytest.mark.parametrize("roles", [["chief"], []])
def test_roles_are_those_there_are(world: World, boss: Client, roles: list[str]) -> None:
    said = invitation() | {"invite-roles": roles}
    assert boss.post(at(world, CONSUMER), said).status_code == 422


def test_a_unit_of_another_organisation_is_none(world: World, boss: Client) -> None:
    said = invitation(**{"invite-unit": str(world.unit_id)})
    assert boss.post(at(world, OWNER), said).status_code == 422


def test_what_is_not_read_yet_is_not_called_missing(
    world: World, boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows come later than the page waits: it says so, and looks again by itself."""
    monkeypatch.setattr(visitors, "READ_OWN_WRITES_SECONDS", 0.0)
    said = {"token": str(uuid4()), "title": "Slow", "slug": "slow", "currency": "USD"}
    landing = boss.post(PATH, said)["Location"]

    early = boss.get(landing)
    world.settle()
    later = boss.get(landing)

    assert (early.status_code, early["Refresh"], early["Retry-After"]) == (503, "2", "1")
    assert b"is recorded, and cannot be shown yet" in early.content
    assert later.status_code == 200 and "Refresh" not in later


def test_a_page_that_lacks_what_was_just_done_says_so(
    world: World, boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visitors, "READ_OWN_WRITES_SECONDS", 0.0)
    here = at(world, CONSUMER)
    unit = {"do": "unit", "unit-token": str(uuid4()), "unit-title": "Late"}
    landing = boss.post(here, unit | {"unit-cost_centre": "L-1"})["Location"]

    early = boss.get(landing).content
    world.settle()

    assert b"is recorded, and not on this page yet" in early
    assert b"is recorded, and not on this page yet" not in boss.get(landing).content
    unknown = boss.get(f"{PATH}/{uuid4()}")
    assert unknown.status_code == 404 and "Refresh" not in unknown


def test_what_is_nowhere_stays_missing_once_all_is_read(world: World, boss: Client) -> None:
    world.settle()
    head = world.store.head()

    assert boss.get(f"{PATH}/{uuid4()}?after={head}").status_code == 404


def test_nobody_is_waited_for_who_has_done_nothing(
    world: World, boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest has written nothing, and what nobody has written yet is nobody's own write."""
    waited: list[Position] = []

    def wait(names: Sequence[str], position: Position, *, timeout_seconds: float) -> bool:
        waited.append(position)
        return True

    monkeypatch.setattr(visitors, "wait_until_read", wait)
    head = world.store.head()

    Client().get(f"/?after={head}")
    for unwritten in (head + 1, 10**18 - 1, 10**30, -1, "", "x"):
        boss.get("/", {"after": str(unwritten)})
    assert waited == []

    boss.get(f"/?after={head}")
    assert waited == [head]


def test_no_list_ends_in_silence(
    world: World, boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each list of the page goes on by itself; a number that is none shows the beginning."""
    monkeypatch.setattr(parts, "SIZE", 2)
    monkeypatch.setattr(parts.part_of, "__defaults__", (2,))
    here = at(world, CONSUMER)
    for number in range(5):
        data = {"do": "unit", "unit-token": str(uuid4()), "unit-title": f"Team {number}"}
        boss.post(here, data | {"unit-cost_centre": f"ZZ-{number}"})
    world.settle()

    seen = ""
    address = here
    for _ in range(10):
        page = boss.get(address).content.decode()
        units = page[page.index('id="units"') : page.index('aria-labelledby="h-unit"')]
        seen += units
        more = re.search(r'href="(\?units=\d+)#units">More', units)
        if more is None:
            break
        address = f"{here}{more[1]}"

    assert all(seen.count(f">ZZ-{number}<") == 1 for number in range(5))
    for odd in ("x", "0", "-1", "99999999999", "2\n"):
        assert boss.get(here, {"units": odd}).status_code == 200


def test_a_payment_entered_twice_is_told_with_its_time_and_no_names_of_fields(
    world: World, boss: Client
) -> None:
    account = AccountRow.objects.get(title="Language models", kind="prepaid")
    where = f"{PATH}/{account.tenant_id}/accounts/{account.account_id}"
    paid = {"do": "funds", "funds-amount": "12.50", "funds-reference": "invoice 9"}
    boss.post(where, paid | {"funds-token": str(uuid4())})
    world.settle()

    again = boss.post(where, paid | {"funds-token": str(uuid4())})

    assert again.status_code == 422
    text = again.content.decode()
    assert re.search(r"credited to the account before, at \w{3} \d+ \w{3} \d\d:\d\d UTC\.", text)
    assert "12.50 USD is on the account" in text and "`" not in text


def test_a_unit_that_has_an_account_is_not_offered_another(world: World, boss: Client) -> None:
    account = AccountRow.objects.get(title="Language models", kind="prepaid")
    here = f"{PATH}/{account.tenant_id}"
    offered = 'for="id_account-unit"'
    assert offered not in boss.get(here).content.decode()

    unit = {"do": "unit", "unit-token": str(uuid4()), "unit-title": "Speech"}
    boss.post(here, unit | {"unit-cost_centre": "S-1"})
    world.settle()

    form = boss.get(here).content.decode().split('id="h-account"')[1]
    assert "Speech" in form and "Language models" not in form
