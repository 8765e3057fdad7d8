"""`offpeak secrets`: a value comes by standard input or is typed unseen, and is never shown."""

from __future__ import annotations

import io
import sys

import pytest
import typer
from typer.testing import CliRunner

from marketplace.sdk import __main__ as line
from marketplace.sdk import work_secrets
from marketplace.sdk.client import Client
from marketplace.sdk.printing import Printer
from marketplace.sdk.session import Session
from tests.marketplace.cli.pretending import Market, offpeak, surroundings

DONE = 200, {"name": "HF_TOKEN", "version": 3, "position": 1}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def context_of(market: Market) -> typer.Context:
    session = Session(Client(market.url, "offp_user_x"), Printer(as_json=False), market.url)
    return typer.Context(typer.main.get_command(line.app), obj=session)


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch, market: Market) -> Market:
    market.answers["PUT secrets/HF_TOKEN"] = DONE
    return market


def given(market: Market, value: bytes, *words: str) -> tuple[int, str, list[object]]:
    asked = ["secrets", "set", "HF_TOKEN", *words]
    done = CliRunner().invoke(line.app, asked, input=value, env=surroundings(market))
    return done.exit_code, done.output, [body for _, _, body in market.heard]


@pytest.mark.parametrize(
    ("value", "words", "sent"),
    [
        (b"hf_abcdefgh\n", [], "hf_abcdefgh"),
        (b"hf_abcdefgh\r\n", [], "hf_abcdefgh"),
        (b"two\nlines\n\n", [], "two\nlines\n"),
        (b"hf_abcdefgh\n", ["--exact"], "hf_abcdefgh\n"),
    ],
)
def test_a_value_is_read_from_standard_input(
    piped: Market, value: bytes, words: list[str], sent: str
) -> None:
    code, said, bodies = given(piped, value, *words)

    assert (code, bodies) == (0, [{"value": sent}])
    assert "version 3" in said and "abcdefgh" not in said and "lines" not in said


@pytest.mark.parametrize("value", [b"", b"\n", b"x" * 40_000, b"\xff\xfe", b"a\0b"])
def test_what_can_be_no_value_is_refused_before_anything_is_sent(
    piped: Market, value: bytes
) -> None:
    code, said, bodies = given(piped, value)

    assert (code, bodies) == (2, [])
    assert "Traceback" not in said


def test_a_value_is_no_argument(piped: Market) -> None:
    assert offpeak(piped, "secrets", "set", "HF_TOKEN", "hunter2").returncode == 2
    assert piped.heard == []


def test_a_name_that_leads_elsewhere_is_refused(piped: Market) -> None:
    for name in ("../tokens", "a b", "9"):
        assert offpeak(piped, "secrets", "rm", name).returncode == 2
    assert piped.heard == []


def test_at_a_terminal_a_value_is_asked_for_by_what_shows_nothing(
    piped: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def typed(text: str, stream: object) -> str:
        asked.append(text)
        return "hunter2-typed"

    monkeypatch.setattr(work_secrets, "getpass", typed)
    monkeypatch.setattr(sys, "stdin", Terminal())
    work_secrets.set_value(context_of(piped), "HF_TOKEN")

    assert asked == ["Value of HF_TOKEN: "]
    assert [body for _, _, body in piped.heard] == [{"value": "hunter2-typed"}]


def test_a_short_value_is_said_to_be_seen_where_work_prints_it(piped: Market) -> None:
    _, said, _ = given(piped, b"1234\n")

    assert "too short to be hidden" in said


def test_secrets_are_listed_and_removed(market: Market) -> None:
    entry = {"name": "HF_TOKEN", "version": 2, "set_at": "2026-01-05T12:00:00Z"}
    market.answers["GET secrets"] = 200, {"data": [entry], "next": None}
    market.answers["DELETE secrets/HF_TOKEN"] = DONE

    assert "HF_TOKEN" in offpeak(market, "secrets", "list").stdout
    assert offpeak(market, "secrets", "rm", "HF_TOKEN").returncode == 0
