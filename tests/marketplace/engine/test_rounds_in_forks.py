"""Rounds worked out in real forks: the same as in the engine, or lost, and nothing in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection

from marketplace.beside import Forked, Lost
from marketplace.domain.decisions.decide import Guards
from marketplace.engine import Engine
from tests.conftest import NOON
from tests.marketplace.support.beside import replayed
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import MARKET, Market

HOUR = timedelta(hours=1)
SECONDS = 30.0


def over(work: Forked) -> Forked:
    """Wait until work is over."""
    wait_for(lambda: work.is_over)
    return work


def wait_for(condition: Callable[[], bool]) -> None:
    due = time.monotonic() + SECONDS
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < due
        pause.wait(0.01)


def is_there(pid: int) -> bool:
    """Tell if a process lives; one that nobody has reaped yet does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_what_a_fork_works_out_comes_back_however_long_it_is() -> None:
    woken = threading.Event()
    work = Forked(lambda: b"x" * 3_000_000, wake=woken.set)

    assert woken.wait(SECONDS)
    assert work.is_over and work.result() == b"x" * 3_000_000


def test_a_fork_holds_no_descriptor_of_its_parent() -> None:
    def descriptors() -> bytes:
        return " ".join(sorted(os.listdir("/proc/self/fd"))).encode()

    with Path(__file__).open("rb"):
        told = over(Forked(descriptors)).result().split()

    assert set(told) <= {b"0", b"1", b"2", b"3", b"4"}, "4 is the folder that it lists"


@pytest.mark.django_db
def test_a_connection_of_the_parent_goes_on_after_a_fork_has_ended() -> None:
    connection.ensure_connection()
    over(Forked(lambda: b"")).result()

    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)


def test_a_fork_that_fails_says_why() -> None:
    def fail() -> bytes:
        raise ValueError("no such thing")

    with pytest.raises(Lost, match="no such thing"):
        over(Forked(fail)).result()


def test_a_fork_that_is_killed_is_lost() -> None:
    def die() -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b""

    with pytest.raises(Lost, match="signal 9"):
        over(Forked(die)).result()


def test_a_fork_that_is_stopped_leaves_no_process() -> None:
    work = Forked(hang)

    work.stop()

    with pytest.raises(Lost, match="signal 9"):
        over(work).result()
    assert not is_there(work._child)


def test_a_fork_that_takes_too_long_is_ended() -> None:
    work = Forked(hang, seconds_max=0.0)

    with pytest.raises(Lost, match="too long"):
        over(work).result()
    wait_for(lambda: not is_there(work._child))


def hang() -> bytes:
    threading.Event().wait()
    return b""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it ends when it writes")
def test_a_fork_ends_with_its_parent_however_that_went() -> None:
    program = (
        "import os, threading\n"
        "from marketplace.beside import Forked\n"
        "work = Forked(lambda: bytes(threading.Event().wait()))\n"
        "print(work._child, flush=True)\n"
        "threading.Event().wait()\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_there(child)

        parent.kill()

    wait_for(lambda: not is_there(child))


# --- an engine's rounds --------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marketplace.round_beside.guards_of_a_round", Guards)
    monkeypatch.setattr("marketplace.engine.guards_of_a_round", Guards)


def waiting() -> Market:
    """Return a market in which bids wait for a round."""
    market = Market()
    for host in "abc":
        market.offer(host, gpus=2, at=1, windows=[(NOON, NOON + 12 * HOUR)])
    for number in range(9):
        gpus, at = 1 + number % 2, 2 + number
        deadline = NOON + 12 * HOUR
        market.bid(str(number), gpus=gpus, hours=3, at=at, deadline=deadline, patience="patient")
    return market


def come_back(market: Market, out: list[Forked]) -> None:
    over(out[-1])
    market.run()


def beside(market: Market) -> list[Forked]:
    """Let an engine work rounds out in forks; return those it began."""
    out: list[Forked] = []

    def begin(work: Callable[[], bytes]) -> Forked:
        out.append(Forked(work))
        return out[-1]

    market.engine = Engine(market.store, MARKET, beside=begin)
    return out


def test_a_round_in_a_fork_grants_what_one_in_the_engine_does() -> None:
    at_once, market = waiting(), waiting()
    at_once.run()
    out = beside(market)
    market.run()
    assert not market.grants()

    come_back(market, out)

    def given(each: Market) -> object:
        return {
            bid_id: (granted.shares, granted.window, granted.price)
            for bid_id, granted in each.grants().items()
        }

    assert given(market) == given(at_once)
    audit(market.events())
    replayed(market)


def test_a_round_whose_fork_is_killed_is_lost_and_the_next_serves_all() -> None:
    market = waiting()
    out = beside(market)
    market.run()
    with suppress(ProcessLookupError):  # it may be done by now
        os.kill(out[0]._child, signal.SIGSTOP)
    market.bid("now", gpus=1, hours=1, at=2)
    market.run()
    assert market.grant("now") is not None, "nobody waits for a fork that hangs"
    with suppress(ProcessLookupError):
        os.kill(out[0]._child, signal.SIGKILL)
    come_back(market, out)
    # It may have been done before it was stopped: then its result was read.
    market.wait(minutes=1)
    market.run()

    come_back(market, out)

    assert len(market.grants()) > 1
    audit(market.events())
    replayed(market)


def test_another_engine_that_takes_over_finds_a_whole_round_or_none() -> None:
    market = waiting()
    out = beside(market)
    market.run()
    over(out[0])
    before = len(market.decisions())
    market.engine = market.new_engine(round_seconds=10**6)

    market.run()
    assert len(market.decisions()) == before or len(market.grants()) > 0

    audit(market.events())
    replayed(market)
