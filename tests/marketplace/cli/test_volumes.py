"""`offpeak volumes` and `--volume`: what is said is what is asked; what is wrong is told here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marketplace.sdk.ending import USAGE
from marketplace.sdk.spoken import NotUnderstood, gib_of
from marketplace.sdk.volumes import mounted, mounts_of
from tests.marketplace.cli.pretending import BID, Market, offpeak

SHOWN: dict[str, Any] = {
    "name": "data", "size_gib": 1, "size_bytes": 7, "version": 3, "manifest": "0" * 64,
    "price": "0.05", "currency": "USD", "expires_at": "2026-12-30T12:00:00Z", "bids": [BID],
    "leases": [], "expired_because": "", "notified_at": None, "unpaid_since": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("data", {"name": "data", "writable": True}),
        ("data:ro", {"name": "data", "writable": False}),
        ("data:in/set", {"name": "data", "writable": True, "path": "in/set"}),
        ("data:in/set:ro", {"name": "data", "writable": False, "path": "in/set"}),
    ],
)
def test_a_volume_of_work_is_said_in_one_word(said: str, meant: dict[str, Any]) -> None:
    assert mounts_of([said]) == [meant]


@pytest.mark.parametrize("said", ["", "Data", "data:", "data::ro", "data:a:b", "data:a:b:ro"])
def test_what_names_no_volume_is_told(said: str) -> None:
    with pytest.raises(NotUnderstood, match="NAME:PATH"):
        mounts_of([said])


def test_a_bid_names_its_volumes_and_shows_them(market: Market) -> None:
    market.answers["POST bids"] = 200, {"id": BID, "position": 1}
    volumes = [{"name": "data", "path": "volumes/data", "writable": False}]
    market.answers[f"GET bids/{BID}"] = 200, {"id": BID, "workload": {"volumes": volumes}}
    said = ("bids", "create", "gpu=A10", "--for", "1h", "--max", "1", "--volume", "data:ro")
    done = offpeak(market, *said, "--", "true")

    assert done.returncode == 0, done.stderr
    [placed] = [body for _, _, body in market.heard if body]
    assert placed["workload"]["volumes"] == [{"name": "data", "writable": False}]
    assert mounted(volumes, {}) == "data:volumes/data:ro"
    assert "data:volumes/data:ro" in done.stdout


def test_a_list_says_what_a_volume_holds_and_who_writes(market: Market) -> None:
    unpaid = {
        **SHOWN,
        "name": "old",
        "bids": [],
        "expired_because": "unpaid",
        "removed_at": "2026-12-30T12:00:00Z",
    }
    market.answers["GET volumes"] = 200, {"data": [SHOWN, unpaid], "next": None}
    done = offpeak(market, "volumes", "list")

    assert f"bid {BID}" in done.stdout
    assert "its price is not paid" in done.stdout
    assert "7 bytes" in done.stdout and "1 GiB" in done.stdout


def test_what_is_larger_than_the_volume_is_not_sent(market: Market, tmp_path: Path) -> None:
    market.answers["GET volumes/data"] = 200, {**SHOWN, "size_gib": 0}
    (tmp_path / "a.txt").write_text("much")
    done = offpeak(market, "volumes", "put", "data", str(tmp_path))

    assert done.returncode == USAGE
    assert "offpeak volumes resize data" in done.stderr
    assert [asked for asked, _, _ in market.heard if asked.startswith("POST")] == []


@pytest.mark.parametrize(
    "words",
    [
        ("create", "../data", "--size", "1"),
        ("get", "Data", "out"),
        ("extend", "data", "--for", "long"),
        ("resize", "data", "-1"),
    ],
)
def test_what_cannot_be_meant_asks_the_market_nothing(
    market: Market, words: tuple[str, ...]
) -> None:
    assert offpeak(market, "volumes", *words).returncode == USAGE
    assert market.heard == []


def test_a_version_that_is_not_kept_names_those_that_are(market: Market, tmp_path: Path) -> None:
    kept = [{"version": 3, "manifest": "0" * 64}, {"version": 2, "manifest": "1" * 64}]
    market.answers["GET volumes/data/versions"] = 200, {"data": kept, "next": None}
    said = ("volumes", "get", "data", str(tmp_path / "out"), "--version", "1")

    assert "Kept: 3, 2" in offpeak(market, *said).stderr


@pytest.mark.parametrize(
    ("said", "gib"),
    [
        ("50", 50), ("5GiB", 5), ("5 gib", 5), ("500MiB", 1), ("1.5TiB", 1536), ("5 GB", 5),
        ("1025MiB", 2), ("1 TB", 932), ("1kB", 1), ("0.5", 1),
    ],
)  # fmt: skip
def test_sizes_are_taken_as_people_say_them_and_rounded_up(said: str, gib: int) -> None:
    assert gib_of(said) == gib


@pytest.mark.parametrize(
    "said", ["", "five", "-5", "5G", "5 B", "1_000", "5GiB!", "1e3", "\u0665", "."]
)
def test_what_is_no_size_is_refused_with_what_is_taken(said: str) -> None:
    with pytest.raises(NotUnderstood, match=r"write 50 \(GiB\), 500GiB, 1.5TiB or 50 GB"):
        gib_of(said)
