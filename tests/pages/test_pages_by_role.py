"""Who may see which page, and what no page may carry."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from tests.pages.world import CONSUMER, OWNER, PLATFORM, World

pytestmark = pytest.mark.django_db

EVERYBODY = ("/", "/bids", "/leases", "/rounds", "/settings")
BY_ROLE = {
    "owner": ("/offers", "/offers/new", "/owner"),
    "consumer": ("/bids/new",),
    "finance": (
        *("/finance", "/finance/matrix", "/finance/costs", "/finance/entries", "/finance/months"),
        *("/payouts", "/ops/burst"),
    ),
    "operator": ("/offers/new", "/owner", "/finance", "/ops", "/ops/burst", "/lab", "/bids/new"),
}
INLINE = re.compile(
    r"""\sstyle\s*=|\son[a-z]+\s*=\s*["']|<script(?![^>]*\ssrc=)|<style|javascript:"""
)


@pytest.mark.parametrize(
    "path", sorted({p for paths in BY_ROLE.values() for p in paths} | {*EVERYBODY})
)
def test_a_guest_is_asked_to_sign_in(client: Client, path: str) -> None:
    answer = client.get(path)

    assert answer.status_code == 302
    assert answer["Location"].startswith("/accounts/login/?next=%2F")


@pytest.mark.parametrize("role", sorted(BY_ROLE))
def test_each_role_sees_its_pages(world: World, role: str) -> None:
    visitor = world.member(PLATFORM if role == "operator" else OWNER, role)

    for path in (*EVERYBODY, *BY_ROLE[role]):
        assert visitor.get(path).status_code == 200, path


@pytest.mark.parametrize(
    ("role", "path"),
    [
        ("consumer", "/offers/new"),
        ("consumer", "/owner"),
        ("consumer", "/finance"),
        ("owner", "/finance"),
        ("owner", "/bids/new"),
        ("finance", "/offers/new"),
    ],
)
def test_a_page_of_another_role_says_so(world: World, role: str, path: str) -> None:
    answer = world.member(OWNER, role).get(path)

    assert answer.status_code == 403
    assert b"Your role in this organisation does not allow that." in answer.content


@pytest.mark.parametrize("role", ["consumer", "finance", "operator", "auditor"])
def test_only_who_governs_the_platform_sees_how_it_runs(world: World, role: str) -> None:
    answer = world.member(OWNER, role).get("/ops")

    assert answer.status_code == 403
    assert world.member(PLATFORM, "auditor").get("/ops").status_code == 200


def test_the_navigation_offers_only_what_may_be_seen(world: World) -> None:
    page = world.member(CONSUMER, "consumer").get("/bids").content.decode()

    assert 'href="/leases"' in page
    assert 'href="/owner"' not in page
    assert 'href="/ops"' not in page


def test_no_page_carries_script_or_style_of_its_own(world: World) -> None:
    world.list_gpus(0, 1)
    visitor = world.member(PLATFORM, "operator", "owner", "consumer", "finance")

    for path in (*EVERYBODY, *(p for paths in BY_ROLE.values() for p in paths), "/docs/"):
        answer = visitor.get(path)
        assert not INLINE.search(answer.content.decode()), path
        policy = answer["Content-Security-Policy"]
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy


def test_no_page_names_another_host(world: World) -> None:
    visitor = world.member(OWNER, "operator", "owner")

    for path in ("/", "/offers/new", "/bids/new", "/settings"):
        page = visitor.get(path).content.decode()
        assert not re.search(r'(src|href|action)="(https?:)?//', page), path


def test_the_gallery_shows_every_part_where_it_is_served() -> None:
    from django.test import RequestFactory

    from config.site.parts.gallery import gallery

    request = RequestFactory().get("/gallery/")
    page = gallery(request).content.decode()

    assert page.count("<section") > 10
    assert not INLINE.search(page)
