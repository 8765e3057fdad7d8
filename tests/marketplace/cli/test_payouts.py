"""`offpeak payouts` and `offpeak earnings`: what is said is what is asked."""

from __future__ import annotations

from pathlib import Path

from tests.marketplace.cli.pretending import BID, Market, offpeak


def test_a_bank_file_is_written_into_a_folder(market: Market, tmp_path: Path) -> None:
    market.answers["POST bank-files"] = 201, {"file_id": BID, "position": 1}
    market.answers[f"POST bank-files/{BID}/content"] = (
        200,
        {"name": "../OFFPEAK-1.xml", "content": "<Document/>", "sha256": "0" * 64},
    )
    done = offpeak(market, "payouts", "send", "--to", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "OFFPEAK-1.xml").read_text() == "<Document/>"
    assert {"format": "pain.001", "currency": "USD"} in [body for _, _, body in market.heard]


def test_what_the_bank_said_is_asked_with_its_day(market: Market) -> None:
    market.answers[f"POST payouts/{BID}/paid"] = 200, {"position": 1}
    said = ("payouts", "paid", BID, "--reference", "TX-1", "--on", "2026-12-02")
    done = offpeak(market, *said)
    assert done.returncode == 0, done.stderr
    [body] = [body for _, _, body in market.heard if body]
    assert body == {"reference": "TX-1", "paid_on": "2026-12-02"}


def test_earnings_are_listed_by_month(market: Market) -> None:
    row = {
        "period": "2026-11", "kind": "usage", "lease_id": BID, "sku": "H100", "currency": "USD",
        "gpu_milliseconds": 3_600_000, "gross": "2.00", "fee": "0.10", "amount": "1.90",
    }  # fmt: skip
    market.answers["GET earnings"] = 200, {"data": [row], "next": None}
    done = offpeak(market, "earnings", "--period", "2026-11")
    assert done.returncode == 0, done.stderr
    assert "1.00" in done.stdout and "1.90" in done.stdout


def test_an_owner_sets_itself_up_at_stripe_and_chooses_it(market: Market) -> None:
    market.answers[f"POST payees/{BID}/stripe"] = 201, {"position": 1}
    market.answers[f"POST payees/{BID}/stripe/onboarding"] = (
        200,
        {"url": "https://stripe.example/1"},
    )
    market.answers[f"PUT payees/{BID}/channel"] = 200, {"position": 2}
    done = offpeak(market, "payouts", "set-up-stripe", BID, "--country", "DE")
    assert done.returncode == 0, done.stderr
    assert "https://stripe.example/1" in done.stderr
    done = offpeak(market, "payouts", "channel", BID, "stripe")
    assert done.returncode == 0, done.stderr
    bodies = [body for _, _, body in market.heard if body]
    assert bodies == [{"country": "DE"}, {"channel": "stripe"}]


def test_a_part_of_a_transfer_is_asked_back(market: Market) -> None:
    market.answers[f"POST payouts/{BID}/reversals"] = 201, {"position": 1}
    done = offpeak(market, "payouts", "reverse", BID, "5.00", "--reason", "charged twice")
    assert done.returncode == 0, done.stderr
    [body] = [body for _, _, body in market.heard if body]
    assert body == {"number": 1, "amount": "5.00", "reason": "charged twice"}


def test_an_owner_agrees_to_self_billing_and_ends_it(market: Market) -> None:
    market.answers["PUT self-billing"] = 200, {"position": 1}
    market.answers["GET self-billing"] = 200, {"data": [], "next": None}

    assert "Not agreed." in offpeak(market, "payouts", "self-billing").stderr
    said = ("payouts", "self-billing", "--agree", "--small-business")
    assert "Agreed." in offpeak(market, *said).stderr
    assert "Ended." in offpeak(market, "payouts", "self-billing", "--end").stderr

    sent = [body for _, _, body in market.heard if body is not None]
    assert sent == [{"agreed": True, "small_business": True}, {"agreed": False}]
