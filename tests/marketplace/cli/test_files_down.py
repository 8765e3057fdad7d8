"""`offpeak files down`: which of its words is a folder of the market, and which one of here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.marketplace.cli.pretending import BID, Market, offpeak

LEASE = "0ff9ea40-0000-4000-8000-000000000001"


def test_of_a_lease_one_word_says_where_to(market: Market, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine").touch()

    refused = offpeak(market, "files", "down", "--lease", LEASE, str(taken))

    assert refused.returncode == 2
    assert f"{taken} is there and not empty" in refused.stderr
    assert not market.heard
    market.answers[f"GET leases/{LEASE}"] = (
        200,
        {"state": "closed", "output_folders": [], "outputs_failed": [], "attempts": []},
    )
    offpeak(market, "files", "down", "--lease", LEASE, str(tmp_path / "new"))
    assert [what for what, _, _ in market.heard] == [f"GET leases/{LEASE}"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("./out",), "./out is no id of a folder: offpeak files list names them."),
        ((BID,), "Say where to: offpeak files down FOLDER ./result"),
        (("--lease", LEASE, BID), "Name a folder, or a lease by --lease: one of the two."),
        (("--lease", LEASE, BID, "./out"), "Name a folder, or a lease by --lease"),
        (("--lease", LEASE, "./out", "--to", "./more"), "Say once where to."),
        ((), "Name a folder, or a lease by --lease"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(
    market: Market, words: tuple[str, ...], said: str
) -> None:
    done = offpeak(market, "files", "down", *words)

    assert done.returncode == 2
    assert said in done.stderr
    assert not market.heard
