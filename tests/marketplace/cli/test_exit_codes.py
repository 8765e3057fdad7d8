"""Exit codes, as config/docs/cli.md lists them, and never a write that nobody hears of."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from marketplace.sdk import VERSION
from marketplace.sdk.spoken import whole_of
from tests.marketplace.cli.pretending import (
    BID,
    PATIENCE_SECONDS,
    ROOT,
    Answer,
    Market,
    at_a_terminal,
    command,
    offpeak,
    surroundings,
)

CREATE = ("bids", "create", "gpu=H100", "--for", "1h", "--max", "2")
PLACED: Answer = 201, {"id": BID, "position": 3}
OPEN: Answer = 200, {"id": BID, "state": "open", "limit": "2.00", "currency": "USD"}


def placing(market: Market, shown: Answer = OPEN) -> None:
    market.answers = {"POST bids": PLACED, f"GET bids/{BID}": shown}


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, 5), (403, 5), (404, 3), (409, 4), (412, 4), (422, 4), (429, 7), (500, 7), (503, 7)],
)
def test_every_refusal_has_its_exit_code(market: Market, status: int, code: int) -> None:
    market.answers["GET bids"] = status, {"detail": "So it is.", "code": "so"}

    done = offpeak(market, "bids", "list")

    assert done.returncode == code
    assert done.stderr == "So it is.\n" and done.stdout == ""


def test_nobody_there_is_told_apart_from_a_refusal(market: Market) -> None:
    done = offpeak(market, "bids", "list", OFFPEAK_SERVER="http://127.0.0.1:9")

    assert done.returncode == 7 and "does not answer" in done.stderr


@pytest.mark.parametrize("answer", [b"<html>Log in</html>", b""])
def test_something_else_than_a_market_is_said_to_be_that(market: Market, answer: bytes) -> None:
    market.answers["GET bids"] = 200, answer

    done = offpeak(market, "bids", "list")

    assert done.returncode == 7 and "as no market does" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("bids", "list", "--limit", "1_000"),
        ("bids", "list", "--limit", "\u0663"),
        ("bids", "list", "--limit", "9" * 5_000),
        ("bids", "list", "--limit", "-0"),
        ("bids", "list", "--limit", "1.0"),
        ("bids", "list", "--no-such"),
        ("bids", "show", "no-uuid"),
        ("statement", "../tokens"),
        (*CREATE[:3], "--for", "\u0663h", "--max", "2"),
        (*CREATE[:3], "--for", "9" * 5_000 + "h", "--max", "2"),
        (*CREATE[:3], "--for", "999999999d", "--max", "2"),
        (*CREATE, "--start", "+999999999d"),
        (*CREATE, "--start", "2026-01-01T00:00:00"),
        (*CREATE, "--start", "0001-01-01T00:00:00+14:00", "--by", "99999-01-01T00:00:00Z"),
        (*CREATE, "--gpus", "0"),
        ("-o", "xml", "bids", "list"),
        ("bids", "list", "-o"),
        ("offers", "terms", BID, "--step", "1h=" + "9" * 5_000),
        ("leases",),
    ],
)
def test_what_cannot_be_meant_is_a_matter_of_usage_and_sends_nothing(
    market: Market, words: tuple[str, ...]
) -> None:
    done = offpeak(market, *words)

    assert (done.returncode, market.heard) == (2, []), done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr) < 6_000


@pytest.mark.parametrize("known", [("OFFPEAK_TOKEN", "tökèn"), ("OFFPEAK_SERVER", "http://[")])
def test_a_token_or_an_address_that_is_none_is_a_matter_of_usage(
    market: Market, known: tuple[str, str]
) -> None:
    done = offpeak(market, "bids", "list", **dict([known]))

    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr


def test_bytes_that_are_no_text_are_a_matter_of_usage(market: Market) -> None:
    done = offpeak(market, "bids", "list", "--state", "\udcff")
    body = offpeak(market, *CREATE[:2], "gpu=\udcff", *CREATE[3:])

    assert (done.returncode, body.returncode, market.heard) == (2, 2, []), done.stderr


def test_a_full_disk_hides_no_write(market: Market) -> None:
    placing(market)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command(*CREATE),
            env=surroundings(market),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 8
    assert f"POST bids ({BID})" in done.stderr and "No space left" in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_a_full_disk_is_told_of_what_was_only_read(market: Market) -> None:
    market.answers["GET tokens"] = 200, {"data": [{"title": "x"}], "next": None}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("tokens", "list", "-o", "json"),
            env=surroundings(market),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert (done.returncode, "No space left" in done.stderr) == (8, True)
    assert "done all the same" not in done.stderr


def test_a_reader_that_has_gone_hides_no_write(market: Market) -> None:
    placing(market)
    ours, theirs = os.pipe()
    os.close(ours)

    done = subprocess.run(
        command(*CREATE),
        env=surroundings(market),
        stdout=theirs,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(theirs)

    assert done.returncode == 8 and BID.encode() in done.stderr
    assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    "shown", [(404, {}), (500, {"detail": "oh"}), (200, b"<html>"), (200, b"[")]
)
def test_a_write_that_cannot_be_shown_is_told_as_done(market: Market, shown: Answer) -> None:
    placing(market, shown)

    done = offpeak(market, *CREATE)

    assert done.returncode == 8, done.stderr
    assert f"POST bids ({BID})" in done.stderr and "do not repeat" in done.stderr


def test_the_first_of_two_writes_is_told_where_the_second_is_refused(market: Market) -> None:
    market.answers = {
        "POST hosts": (201, {"id": BID, "position": 3}),
        f"POST hosts/{BID}/tokens": (403, {"detail": "Not you."}),
    }

    done = offpeak(market, "hosts", "add", "rack", "--region", "eu")

    assert done.returncode == 5
    assert "Not you." in done.stderr and f"POST hosts ({BID})" in done.stderr


def test_the_second_request_names_the_position_of_the_first(market: Market) -> None:
    market.answers = {
        "POST hosts": (201, {"id": BID, "position": 3}),
        f"POST hosts/{BID}/tokens": (201, {"id": "t", "token": "offp_host_x", "position": 4}),
    }

    assert offpeak(market, "hosts", "add", "rack", "--region", "eu").returncode == 0

    assert [headers.get("offpeak-after") for _, headers, _ in lower(market)] == [None, "3"]


def lower(market: Market) -> list[tuple[str, dict[str, str], Any]]:
    return [
        (asked, {name.lower(): value for name, value in headers.items()}, body)
        for asked, headers, body in market.heard
    ]


@pytest.mark.parametrize("form", ["table", "json"])
def test_waiting_in_vain_names_the_bid_and_what_to_do_next(market: Market, form: str) -> None:
    placing(market)

    done = offpeak(market, *CREATE, "--wait", "--timeout", "1s", "-o", form)

    assert done.returncode == 6
    assert f"offpeak bids explain {BID}" in done.stderr
    assert BID in done.stdout
    if form == "json":
        assert json.loads(done.stdout)["id"] == BID


def test_a_bid_that_ends_without_a_lease_ends_the_wait(market: Market) -> None:
    placing(market, (200, {"id": BID, "state": "expired", "lease_id": None}))

    done = offpeak(market, *CREATE, "--wait")

    assert done.returncode == 4 and "expired" in done.stderr and BID in done.stderr


def test_a_market_that_goes_away_during_the_wait_takes_no_id_with_it(market: Market) -> None:
    asked: list[str] = []

    def answer(what: str) -> Answer:
        asked.append(what)
        if what == "POST bids":
            return PLACED
        return OPEN if len(asked) < 4 else (503, {"detail": "Away."})

    market.answer = answer

    done = offpeak(market, *CREATE, "--wait")

    assert done.returncode == 7 and "Away." in done.stderr
    assert f"offpeak bids explain {BID}" in done.stderr and BID in done.stdout


def test_ctrl_c_during_the_wait_takes_no_id_with_it(market: Market) -> None:
    placing(market)
    with subprocess.Popen(
        command(*CREATE, "--wait", "-o", "json"),
        env=surroundings(market),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background job ignores Ctrl-C, and so would all that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            ends = time.monotonic() + PATIENCE_SECONDS
            while len(market.heard) < 3 and time.monotonic() < ends:
                assert process.poll() is None, process.communicate()
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()

    assert process.returncode == 130, err
    assert BID in out and f"offpeak bids explain {BID}" in err and "Traceback" not in err


def test_a_write_that_nobody_answered_is_told_as_not_known(market: Market) -> None:
    market.answers["POST bids"] = 503, {"detail": "Away.", "code": "store-busy"}
    refused = offpeak(market, *CREATE)
    lost = offpeak(market, *CREATE, OFFPEAK_SERVER="http://127.0.0.1:9")

    assert (refused.returncode, lost.returncode) == (7, 7)
    assert "Whether POST bids was done is not known" in lost.stderr


def test_one_key_names_a_write_through_all_its_repeats(market: Market) -> None:
    answers = iter([(409, {"code": "still-in-progress"})] * 2 + [PLACED])

    def answer(what: str) -> Answer:
        if what != "POST bids":
            return OPEN
        return (503, {}) if len(market.heard) == 1 else next(answers)

    market.answer = answer

    done = offpeak(market, *CREATE)

    assert done.returncode == 0, done.stderr
    keys = {headers["idempotency-key"] for asked, headers, _ in lower(market) if "POST" in asked}
    assert len(keys) == 1 and len(market.heard) == 5


def test_the_output_may_be_chosen_anywhere_but_not_within_the_work(market: Market) -> None:
    placing(market)
    market.answers["GET bids"] = 200, {"data": [], "next": None}
    for words in (
        ("-o", "json", "bids", "list"),
        ("bids", "-o", "json", "list"),
        ("bids", "list", "-o", "json"),
        ("bids", "list", "-ojson"),
        ("bids", "list", "--output=json"),
        ("bids", "--output", "json", "list"),
    ):
        assert offpeak(market, *words).stdout == "[]\n", words

    work = ("--", "python", "-o", "json", "--version")
    assert BID in offpeak(market, *CREATE, *work).stdout
    sent = next(body for asked, _, body in market.heard if asked == "POST bids")
    assert sent["workload"]["command"] == list(work[1:])


def test_a_refusal_is_an_object_for_programs(market: Market) -> None:
    market.answers["GET bids"] = 404, {"detail": "Not here.", "code": "bid-unknown", "status": 404}

    done = offpeak(market, "bids", "list", "-o", "json")

    assert done.returncode == 3 and done.stdout == ""
    told = json.loads(done.stderr)
    assert (told["code"], told["detail"], told["exit_code"]) == ("bid-unknown", "Not here.", 3)


def test_the_version_is_told(market: Market) -> None:
    done = offpeak(market, "--version")

    assert (done.returncode, done.stdout, market.heard) == (0, f"{VERSION}\n", [])


TAKING_BACK = (("leases", "reclaim"), ("offers", "withdraw"), ("hosts", "retire"))


def test_what_cannot_be_undone_is_asked_back_at_a_terminal(market: Market) -> None:
    market.answer = lambda asked: (200, {"id": BID, "position": 3})

    no, shown = at_a_terminal(market, ["hosts", "retire", BID], columns=80, typed="n\n")
    heard = len(market.heard)
    yes, _ = at_a_terminal(market, ["hosts", "retire", BID], columns=80, typed="y\n")

    assert (no, heard, yes) == (1, 0, 0)
    assert "[y/N]" in shown and "Nothing was done" in shown and len(market.heard) == 1


@pytest.mark.parametrize("words", TAKING_BACK)
def test_programs_and_yes_are_not_asked_back(market: Market, words: tuple[str, str]) -> None:
    market.answer = lambda asked: (200, {"id": BID, "position": 3})

    for more in ((), ("--yes",)):
        done = offpeak(market, *words, BID, *more)
        assert done.returncode == 0 and "[y/N]" not in done.stderr, done.stderr


def test_a_file_that_cannot_be_written_is_told(market: Market, tmp_path: Path) -> None:
    market.answers["GET exports"] = 200, b"a,b\n"
    target = tmp_path / "none" / "november.csv"

    refused = offpeak(market, "export", "focus", "--period", "2026-11", "--to", str(target))
    target.parent.mkdir()
    done = offpeak(market, "export", "focus", "--period", "2026-11", "--to", str(target))

    assert refused.returncode == 8 and "november.csv" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert done.returncode == 0 and target.read_bytes() == b"a,b\n"


def test_the_codes_are_those_of_the_document() -> None:
    text = (ROOT / "config" / "docs" / "cli.md").read_text()
    listed = {int(code) for code in re.findall(r"^\| ([0-9]+) \|", text, re.MULTILINE)}

    assert listed == {0, *range(1, 9), 125, 130}


def test_a_number_is_read_as_the_market_reads_it() -> None:
    assert (whole_of("007"), whole_of("-0"), whole_of(" 12 ")) == (7, 0, 12)
