"""Nothing in the agent's log lets a reader act as the host, whoever put it there."""

from __future__ import annotations

import logging

import pytest

from ledger.domain import tokens
from metering.agent.logs import FORMAT, HIDDEN, Hiding, hide

TOKEN = tokens.write("host", bytes(range(32)))


def line(text: str, *arguments: object, error: Exception | None = None) -> str:
    about = None if error is None else (type(error), error, None)
    record = logging.LogRecord("agent", logging.ERROR, "x.py", 1, text, arguments, about)
    return Hiding(FORMAT).format(record)


@pytest.mark.parametrize(
    "text",
    [
        f"the server refuses {TOKEN}",
        f"{{'Authorization': 'Bearer {TOKEN}'}}",
        f"Authorization: Bearer {TOKEN}",
        f"authorization=Bearer {TOKEN}",
        f"https://me:{TOKEN}@market.example/api failed",
        f"Bearer {TOKEN[:-3]} is cut short",
    ],
)
def test_its_token_is_hidden_in_texts_arguments_and_errors(text: str) -> None:
    for shown in (line(text), line("%s", text), line("it failed", error=ValueError(text))):
        assert TOKEN[12:30] not in shown
        assert HIDDEN in shown


def test_passwords_in_addresses_are_hidden_and_the_rest_is_told() -> None:
    assert hide("http://proxy:hunter2@10.0.0.1:3128 refused") == (
        f"http://proxy:{HIDDEN}@10.0.0.1:3128 refused"
    )


def test_which_token_it_is_can_be_told() -> None:
    assert TOKEN[:16] in hide(f"the server refuses {TOKEN}")


@pytest.mark.parametrize(
    "text", ["lease 7f3a: asked to stop by 12:00:00", "https://market.example:8443/api answers"]
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert hide(text) == text
