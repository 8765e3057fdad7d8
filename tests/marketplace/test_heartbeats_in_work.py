"""`offpeak.heartbeat`: what work says of itself, on the host and to the market."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marketplace.sdk import heartbeat as module
from marketplace.sdk.heartbeat import Heart, heartbeat, of_this_work
from metering.agent.runtimes.saved import HEARTBEAT, beaten_ms

NOW = 1_767_614_400_000


class Clock:
    def __init__(self) -> None:
        self.ms = NOW

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_host_reads_what_the_work_wrote(tmp_path: Path, clock: Clock) -> None:
    heart = Heart(tmp_path / HEARTBEAT, now_ms=clock)

    heart.beat()
    clock.ms += 30_000
    heart.beat()

    assert beaten_ms(tmp_path / HEARTBEAT, now_ms=clock.ms) == (NOW, NOW + 90_000)


def test_after_a_silence_a_new_span_begins(tmp_path: Path, clock: Clock) -> None:
    heart = Heart(tmp_path / HEARTBEAT, now_ms=clock)
    heart.beat(covers=10)
    clock.ms += 11_000

    heart.beat(covers=10)

    since = NOW + 11_000
    assert beaten_ms(tmp_path / HEARTBEAT, now_ms=clock.ms) == (since, since + 10_000)


def test_a_long_part_is_announced_even_just_after_another_beat(
    tmp_path: Path, clock: Clock
) -> None:
    heart = Heart(tmp_path / HEARTBEAT, now_ms=clock)
    heart.beat()
    heart.beat(covers=900)

    assert beaten_ms(tmp_path / HEARTBEAT, now_ms=clock.ms) == (NOW, NOW + 900_000)


def test_what_the_market_did_not_take_is_sent_again(clock: Clock) -> None:
    sent: list[list[tuple[int, int]]] = []
    answers = iter([False, False, True, True])

    def send(spans: list[tuple[int, int]]) -> bool:
        sent.append(spans)
        return next(answers)

    heart = Heart(None, send, now_ms=clock)
    heart.beat(covers=10)
    heart.rest()
    clock.ms += 60_000
    heart.beat(covers=10)
    heart.rest()

    first, second = (NOW, NOW + 10_000), (NOW + 60_000, NOW + 70_000)
    assert sent[0] == [first]
    assert [first, second] in sent


@pytest.mark.parametrize("text", ["", "soon", f"{NOW}", f"{NOW} {NOW}", f"{NOW + 5} {NOW}", "\x00"])
def test_what_is_no_heartbeat_says_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / HEARTBEAT
    path.write_text(text)

    assert beaten_ms(path, now_ms=NOW) is None


def test_a_host_believes_an_hour_ahead_and_no_link(tmp_path: Path) -> None:
    path = tmp_path / HEARTBEAT
    path.write_text(f"{NOW} {NOW + 90_000_000}\n")
    (tmp_path / "link").symlink_to(path)

    assert beaten_ms(path, now_ms=NOW) == (NOW, NOW + 3_600_000)
    assert beaten_ms(tmp_path / "link", now_ms=NOW) is None


def test_it_is_of_the_work_that_the_runtime_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OFFPEAK_LEASE_ID", "OFFPEAK_CHECKPOINT", "OFFPEAK_SERVER", "OFFPEAK_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert of_this_work() is None

    monkeypatch.setenv("OFFPEAK_LEASE_ID", "0ff9ea40-0000-4000-8000-000000000009")
    monkeypatch.setenv("OFFPEAK_CHECKPOINT", str(tmp_path / ".checkpoint"))
    inside = of_this_work()
    assert inside is not None
    assert (inside.file, inside.send) == (tmp_path / ".heartbeat", None)

    monkeypatch.setenv("OFFPEAK_SERVER", "http://127.0.0.1:1")
    monkeypatch.setenv("OFFPEAK_TOKEN", "offpeak_x")
    connected = of_this_work()
    assert connected is not None and connected.send is not None
    assert not connected.send([(NOW, NOW + 1)])


def test_elsewhere_it_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OFFPEAK_LEASE_ID", raising=False)
    kept: list[Any] = []
    monkeypatch.setattr(module, "_heart", kept)

    heartbeat()

    assert kept == [None]
