"""`offpeak run`: what is asked for, what is shown, and the exit code it ends with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.marketplace.cli.pretending import BID, Market, Sent, offpeak

LEASE = "0ff9ea40-0000-4000-8000-000000000001"
WORDS = ("run", "--needs", "gpu=L4", "--for", "1h", "--max", "2")
END = {"size": 4, "dropped": 0, "complete": True, "more": False}


def stream(text: str) -> Sent:
    """Return a log as the market sends it."""
    said = f"id: {len(text)}\ndata: {json.dumps(text)}\n\n" if text else ""
    return Sent(f"{said}event: end\nid: {len(text)}\ndata: {json.dumps(END)}\n\n".encode())


def works(
    market: Market, *codes: int | None, out: str = "hey\n", err: str = "", **more: Any
) -> None:
    """Let the market match each bid at once, and its work end with these codes, one to a host."""
    lease = {
        "id": LEASE,
        "state": "closed",
        "close_reason": {"code": 101, "text": "The work finished by itself."},
        "attempts": [
            {"number": 1, "host_id": str(at), "exit_code": code, "reason": ""}
            for at, code in enumerate(codes)
        ],
        "output_folders": [],
        "outputs_failed": [],
        **more,
    }
    market.answers |= {
        "POST bids": (201, {"id": BID, "position": 7}),
        f"GET bids/{BID}": (200, {"id": BID, "state": "filled", "lease_id": LEASE}),
        f"GET leases/{LEASE}": (200, lease),
        f"GET leases/{LEASE}/logs/stdout": (200, stream(out)),
        f"GET leases/{LEASE}/logs/stderr": (200, stream(err)),
        f"GET leases/{LEASE}/usage": (200, {"cost": "0.004", "currency": "USD"}),
    }


def asked(market: Market) -> Any:
    return next(body for what, _, body in market.heard if what == "POST bids")


def test_it_bids_for_the_soonest_start_shows_the_log_and_says_what_it_cost(market: Market) -> None:
    works(market, 0, err="careful\n")

    done = offpeak(market, *WORDS, "--env", "RATE=0.5=x", "--", "python3", "a.py", "--max", "9")

    assert (done.returncode, done.stdout) == (0, "hey\n")
    assert "careful" in done.stderr
    assert "Ended with exit code 0. Cost so far: 0.004 USD." in done.stderr
    bid = asked(market)
    assert (bid["query"], bid["seeks"], bid["duration_seconds"]) == ("gpu=L4", "soonest", 3_600)
    assert bid["workload"] == {
        "kind": "other",
        "command": ["python3", "a.py", "--max", "9"],
        "environment": {"RATE": "0.5=x"},
    }


def test_a_rule_on_idle_leases_is_in_the_bid_itself(market: Market) -> None:
    works(market, 0)

    done = offpeak(market, *WORDS, "--end-when-idle", "30m", "--detach", "--", "true")

    assert done.returncode == 0, done.stderr
    assert asked(market)["workload"]["end_when_idle_seconds"] == 1_800
    assert [what for what, _, _ in market.heard] == ["POST bids"]


@pytest.mark.parametrize("network", ["open", "none"])
def test_where_the_work_connects_to_is_a_condition_of_the_bid(market: Market, network: str) -> None:
    works(market, 0)

    done = offpeak(market, *WORDS, "--network", network, "--detach", "--", "true")

    assert done.returncode == 0, done.stderr
    assert asked(market)["query"] == f"gpu=L4 network={network}"


def test_a_network_that_no_host_has_a_word_for_is_refused_before_anything_is_sent(
    market: Market,
) -> None:
    done = offpeak(market, *WORDS, "--network", "wifi", "--", "true")

    assert done.returncode == 2
    assert "'wifi'" in done.stderr and "'none'" in done.stderr
    assert not market.heard


PROMISED = ("--starts-within", "90s", "--availability", "0.999")


def test_a_promise_that_owners_are_asked_for_is_a_condition_of_the_bid(market: Market) -> None:
    works(market, 0)
    words = ("bids", "create", "gpu=L4", "--for", "1h", "--max", "2", *PROMISED)

    ran = offpeak(market, *WORDS, *PROMISED, "--detach", "--", "true")
    of_run = asked(market)["query"]
    created = offpeak(market, *words, "--", "true")

    assert (ran.returncode, created.returncode) == (0, 0), ran.stderr + created.stderr
    assert asked(market)["query"] == of_run == "gpu=L4 starts<=90s availability>=0.999"


def test_bids_create_sends_the_rule_on_idle_leases_with_the_bid(market: Market) -> None:
    works(market, 0)
    words = ("bids", "create", "gpu=L4", "--for", "1h", "--max", "2", "--end-when-idle", "1h")

    done = offpeak(market, *words, "--", "true")

    assert done.returncode == 0, done.stderr
    assert asked(market)["workload"]["end_when_idle_seconds"] == 3_600
    assert not [what for what, _, _ in market.heard if what.startswith("PUT")]


@pytest.mark.parametrize(
    ("codes", "code"),
    [((7,), 7), ((-9,), 137), ((0, 0), 0), ((0, 3), 3), ((None,), 125), ((), 125)],
    ids=["its own", "a signal's", "of several hosts", "the first bad one", "stopped", "never ran"],
)
def test_it_ends_with_the_exit_code_of_the_work(
    market: Market, codes: tuple[int | None, ...], code: int
) -> None:
    works(market, *codes)

    assert offpeak(market, *WORDS, "--", "true").returncode == code


def test_a_program_reads_lines_of_json(market: Market) -> None:
    works(market, 3)

    done = offpeak(market, "-o", "json", *WORDS, "--", "true")

    *_, last = map(json.loads, done.stdout.splitlines())
    assert (last["lease_id"], last["exit_code"], last["cost"]) == (LEASE, 3, "0.004")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Say what runs, after --"),
        (("--to", "here", "--", "true"), "--to takes home what --keep names"),
        (("--env", "RATE", "--", "true"), "--env 'RATE' is no variable: write NAME=VALUE."),
        (("./absent", "--", "true"), "is no folder"),
        (("--end-when-idle", "4m", "--", "true"), "--end-when-idle 4m: between 5m and 12h"),
        (("--keep", "out/", "--to", ".", "--", "true"), "is there and not empty"),
        (
            ("https://data.example/w.bin", "--", "true"),
            "A single file by https is fetched by hosts",
        ),
        (("--saves-every", "soon", "--", "true"), "'soon' is no length of time"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(
    market: Market, words: tuple[str, ...], said: str
) -> None:
    works(market, 0)

    done = offpeak(market, *WORDS, *words)

    assert done.returncode == 2
    assert said in done.stderr
    assert not market.heard


def test_a_time_of_nothing_is_said_to_the_market_and_not_left_out(market: Market) -> None:
    works(market, 0)

    offpeak(market, *WORDS, "--saves-every", "0s", "--detach", "--", "true")

    assert asked(market)["workload"]["checkpoint_seconds"] == 0


def test_a_refused_bid_may_be_asked_for_again_though_its_folder_was_sent(
    market: Market, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("print()")
    market.answers |= {
        "POST folders/missing": (200, {"links": {}}),
        "POST folders": (201, {"id": LEASE}),
        "POST bids": (409, {"code": "secret-missing", "detail": "No such secret is kept."}),
    }

    done = offpeak(market, *WORDS, str(tmp_path), "--", "true")

    assert done.returncode == 4
    assert "1 file, 7 bytes: what is not there yet is sent." in done.stderr
    assert "Nothing had to be sent: all of it is there already." in done.stderr
    assert done.stderr.rstrip().endswith("No such secret is kept.")


def test_of_a_lease_that_somebody_ended_it_says_who_did(market: Market) -> None:
    close = {"code": 102, "text": "The consumer ended the lease."}
    attempt = {"number": 1, "host_id": "a", "exit_code": None, "started_at": "2026-01-05T10:00:00Z"}
    works(market, close_reason=close, attempts=[{**attempt, "reason": "the server asked for it"}])

    done = offpeak(market, *WORDS, "--", "true")

    assert done.returncode == 125
    assert "Ended with no exit code: The consumer ended the lease. Cost so far" in done.stderr


def test_the_log_of_a_lease_that_never_began_is_not_waited_for(market: Market) -> None:
    works(market, activated_at=None)

    done = offpeak(market, *WORDS, "--", "true")

    assert (done.returncode, done.stdout) == (125, "")
    assert not [what for what, _, _ in market.heard if "logs" in what]


def test_whoever_gives_up_waiting_hears_what_stands(market: Market) -> None:
    works(market, 0)
    market.answers[f"GET bids/{BID}"] = (200, {"id": BID, "state": "open", "lease_id": None})

    done = offpeak(market, *WORDS, "--timeout", "0s", "--", "true")

    assert done.returncode == 6
    assert f"The bid stands: offpeak bids cancel {BID} withdraws it." in done.stderr

    works(market, 0, state="scheduled", starts_at="2026-01-05T10:00:00Z")

    done = offpeak(market, *WORDS, "--timeout", "0s", "--", "true")

    assert done.returncode == 6
    assert "scheduled: it begins" in done.stderr
    assert f"offpeak leases end {LEASE} ends it. Next: offpeak leases show {LEASE}" in done.stderr


def test_what_it_made_is_waited_for_and_what_could_not_be_kept_is_said(
    market: Market, tmp_path: Path
) -> None:
    failed = {"host_id": LEASE, "reason": "no room is left", "final": True, "at": ""}
    works(market, 0, outputs_failed=[failed])

    done = offpeak(market, *WORDS, "--keep", "out/", "--to", str(tmp_path / "home"), "--", "true")

    assert done.returncode == 0
    assert "Not kept: no room is left" in done.stderr
    assert asked(market)["workload"]["outputs"] == ["out/"]


def test_with_detach_it_ends_once_the_bid_is_placed(market: Market) -> None:
    works(market, 1)

    done = offpeak(market, *WORDS, "-d", "--", "true")

    assert (done.returncode, done.stdout) == (0, "")
    assert f"Placed bid {BID}. Next: offpeak bids explain {BID}" in done.stderr
    assert {what for what, _, _ in market.heard} == {"POST bids"}


NEXT_BID, NEXT_LEASE = f"{BID[:-1]}8", f"{LEASE[:-1]}2"


def chained(*whys: str | None) -> list[dict[str, Any]]:
    """Return bids that follow one another, each with why nothing follows it."""
    bids = (BID, NEXT_BID)
    return [
        {"id": bids[at], "chain": {"number": at + 1, "ended_because": why}}
        for at, why in enumerate(whys)
    ]


def goes_on(market: Market) -> None:
    """Let an owner take back the first lease, and the work go on in another one."""
    works(market, 0, out="two\n", id=NEXT_LEASE, bid_id=NEXT_BID)
    second = {
        asked.replace(LEASE, NEXT_LEASE).replace(BID, NEXT_BID): answer
        for asked, answer in market.answers.items()
        if asked.startswith("GET")
    }
    filled = {"id": NEXT_BID, "state": "filled", "lease_id": NEXT_LEASE}
    second[f"GET bids/{NEXT_BID}"] = (200, filled)
    reclaimed = {"code": 201, "text": "An owner took the capacity back."}
    works(market, None, out="one\n", bid_id=BID, close_reason=reclaimed, lost_seconds=42)
    market.answers |= second


def test_work_that_was_cut_short_is_followed_where_it_goes_on(market: Market) -> None:
    goes_on(market)
    chain = {"data": chained(None, "the work is done"), "next": None}
    market.answers |= {
        f"GET bids/{BID}/chain": (200, chain),
        f"GET bids/{NEXT_BID}/chain": (200, chain),
    }

    done = offpeak(market, *WORDS, "--resume", "--saves-every", "10m", "--", "true")

    assert (done.returncode, done.stdout) == (0, "one\ntwo\n"), done.stderr
    assert "An owner took the capacity back. Lost: 42 s of work." in done.stderr
    assert f"It goes on as bid {NEXT_BID}." in done.stderr
    assert "Ended with exit code 0. Cost so far: 0.008 USD." in done.stderr
    assert asked(market)["resume"] is True
    assert asked(market)["workload"]["checkpoint_seconds"] == 600


@pytest.mark.parametrize("chain", [chained("it is done"), [{"id": BID, "chain": None}]])
def test_it_ends_where_nothing_follows(market: Market, chain: list[dict[str, Any]]) -> None:
    works(market, 4, bid_id=BID)
    market.answers[f"GET bids/{BID}/chain"] = (200, {"data": chain, "next": None})

    done = offpeak(market, "-o", "json", *WORDS, "--resume", "--", "true")

    *_, last = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, last["leases"], last["cost"]) == (4, [LEASE], "0.004")


def test_secrets_are_named_and_never_given(market: Market) -> None:
    works(market, 0)
    named = ("--secret", "KEY", "--secret-env", "HF_TOKEN")

    done = offpeak(market, *WORDS, *named, "-d", "--", "true")

    assert done.returncode == 0, done.stderr
    workload = asked(market)["workload"]
    assert workload["secrets"] == ["KEY", "HF_TOKEN"]
    assert workload["secret_variables"] == ["HF_TOKEN"]
