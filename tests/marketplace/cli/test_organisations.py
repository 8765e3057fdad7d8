"""How the verbs about organisations, people and accounts end when they are refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.marketplace.cli.pretending import BID, Answer, Market, offpeak

ME: Answer = 200, {"tenant_id": BID}
ADA: dict[str, Any] = {"email": "Ada@x.example", "user_id": BID, "subscriber_id": None}
ROLE = ("--role", "consumer")
VERBS: dict[str, tuple[str, ...]] = {
    "POST tenants": ("tenants", "create", "x-labs", "--title", "X"),
    f"GET tenants/{BID}/subscribers": ("units", "list"),
    f"POST tenants/{BID}/subscribers": ("units", "create", "U", "--cost-centre", "C"),
    f"GET tenants/{BID}/members": ("members", "list"),
    f"POST tenants/{BID}/invitations": ("members", "invite", "a@x.example", *ROLE),
    f"PATCH tenants/{BID}/members/{BID}": ("members", "set-roles", "ada@x.example", *ROLE),
    f"DELETE tenants/{BID}/members/{BID}": ("members", "remove", BID, "--yes"),
    f"DELETE tenants/{BID}/members/{BID}/second-factor": ("members", "unlock", BID, "--yes"),
    f"GET tenants/{BID}/invitations": ("invitations", "list"),
    f"DELETE tenants/{BID}/invitations/{BID}": ("invitations", "revoke", BID),
    f"PUT accounts/{BID}/budget": ("credit-limits", "set", BID, "200"),
    f"POST accounts/{BID}/funds": ("funds", "add", BID, "5", "--reference", "r"),
}


def answers(asked: str, status: int) -> dict[str, Answer]:
    known: dict[str, Answer] = {
        "GET me": ME,
        f"GET tenants/{BID}/members": (200, {"data": [ADA], "next": None}),
        f"GET accounts/{BID}": (200, {"account_id": BID, "currency": "USD"}),
    }
    return known | {asked: (status, {"detail": "So it is.", "code": "so"})}


@pytest.mark.parametrize("asked", VERBS)
@pytest.mark.parametrize(("status", "code"), [(403, 5), (404, 3), (409, 4), (422, 4), (503, 7)])
def test_a_refused_verb_says_why_and_ends_by_the_table(
    market: Market, asked: str, status: int, code: int
) -> None:
    market.answers = answers(asked, status)

    done = offpeak(market, *VERBS[asked])

    assert (done.returncode, done.stdout) == (code, ""), (done.stderr, market.heard)
    assert done.stderr == "So it is.\n"


@pytest.mark.parametrize(
    "words",
    [
        ("members", "set-roles", "nobody@x.example", *ROLE),
        ("members", "remove", "nobody@x.example", "--yes"),
        ("members", "unlock", "nobody@x.example", "--yes"),
        ("members", "list", "--tenant", "no-such"),
        ("members", "invite", "a@x.example"),
        ("members", "invite", "a@x.example", *ROLE, "--for", "soon"),
        ("members", "invite", "a@x.example", *ROLE, "--unit", "no-uuid"),
        ("invitations", "revoke", "no-uuid"),
    ],
)
def test_whoever_is_not_there_is_a_matter_of_usage_and_nothing_is_written(
    market: Market, words: tuple[str, ...]
) -> None:
    market.answers = answers("GET tenants", 200) | {
        "GET tenants": (200, {"data": [], "next": None})
    }

    done = offpeak(market, *words)

    assert done.returncode == 2, done.stderr
    assert [asked for asked, _, _ in market.heard if not asked.startswith("GET")] == []


def test_a_second_factor_that_is_removed_says_whether_its_person_knows(market: Market) -> None:
    for mailed, said in ((True, "They are told by mail."), (False, "no mail was sent")):
        market.answers = answers("GET me", 200) | {
            "GET me": ME,
            f"DELETE tenants/{BID}/members/{BID}/second-factor": (
                200,
                {"mailed": mailed, "position": 3},
            ),
        }

        done = offpeak(market, "members", "unlock", "ada@x.example", "--yes")

        assert done.returncode == 0 and said in done.stderr + done.stdout
